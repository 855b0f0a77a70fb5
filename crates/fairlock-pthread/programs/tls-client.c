// TLS clients that do nothing but shake hands, and little for it: tls-client PORT CLIENTS HANDSHAKES
//
// For haproxy-tls.sh. Each handshake is a full one of TLS 1.3, in a connection of its own that is reset afterwards, so that
// no port is left waiting. To the server these are clients like others. They take a quarter of the time that OpenSSL's would,
// as they always show the same key, and look neither at the server's certificate nor at its signature: **not for anything
// but measuring a server**. Prints "HANDSHAKES handshakes in SECONDS s", and ends with 1 if one of them fails.
//
// The names are those of RFC 8446: the messages of section 4, the records of 5, the keys of 7.1.

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HASH = 32, KEY = 16, IV = 12, TAG = 16, SHARE = 32, MOST = 1 << 16 };
enum { ALERT = 21, HANDSHAKE = 22, APPLICATION = 23 };
enum { SERVER_HELLO = 2, FINISHED = 20 };

static struct sockaddr_in server = {.sin_family = AF_INET};
static atomic_long left;
static EVP_PKEY *own_key;

// TLS_AES_128_GCM_SHA256, X25519 and ECDSA P-256 are all that it offers. The key's share comes last.
static uint8_t client_hello[] = {
    HANDSHAKE, 3, 1, 0, 118,
    1, 0, 0, 114, 3, 3,
    'n', 'o', 't', ' ', 'a', 't', ' ', 'a', 'l', 'l', ' ', 'r', 'a', 'n', 'd', 'o',
    'm', ',', ' ', 'b', 'u', 't', ' ', 's', 'h', 'o', 'r', 't', ' ', '.', '.', '.',
    0, 0, 2, 0x13, 1, 1, 0, 0, 71,
    0, 43, 0, 3, 2, 3, 4,
    0, 10, 0, 4, 0, 2, 0, 29,
    0, 13, 0, 4, 0, 2, 4, 3,
    0, 45, 0, 2, 1, 1,
    0, 51, 0, 38, 0, 36, 0, 29, 0, SHARE,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void extract(const uint8_t *salt, const uint8_t *secret, uint8_t *result) {
    HMAC(EVP_sha256(), salt, HASH, secret, HASH, result, NULL);
}

// At most HASH bytes; the context has HASH bytes or none.
static void expand(const uint8_t *secret, const char *label, const uint8_t *context, uint8_t *result, size_t length) {
    uint8_t info[64 + HASH], block[HASH], *end = info;
    size_t letters = strlen(label);
    *end++ = 0;
    *end++ = (uint8_t)length;
    *end++ = (uint8_t)(6 + letters);
    memcpy(end, "tls13 ", 6);
    memcpy(end + 6, label, letters);
    end += 6 + letters;
    *end++ = context ? HASH : 0;
    if (context) {
        memcpy(end, context, HASH);
        end += HASH;
    }
    *end++ = 1;
    HMAC(EVP_sha256(), secret, HASH, info, end - info, block, NULL);
    memcpy(result, block, length);
}

// What one side encrypts with.
struct keys {
    uint8_t secret[HASH], key[KEY], iv[IV];
    uint64_t records;
};

static void derive(struct keys *keys, const uint8_t *secret, const char *label, const uint8_t *transcript) {
    expand(secret, label, transcript, keys->secret, HASH);
    expand(keys->secret, "key", NULL, keys->key, KEY);
    expand(keys->secret, "iv", NULL, keys->iv, IV);
    keys->records = 0;
}

static void nonce(struct keys *keys, uint8_t *iv) {
    memcpy(iv, keys->iv, IV);
    for (int i = 0; i < 8; i++)
        iv[IV - 1 - i] ^= (uint8_t)(keys->records >> 8 * i);
    keys->records++;
}

static void read_all(int connection, uint8_t *to, size_t length) {
    if (recv(connection, to, length, MSG_WAITALL) != (ssize_t)length)
        fail("the server closed a connection");
}

// Reads a record, header and all, and returns its length without the header.
static size_t read_record(int connection, uint8_t *record) {
    do {
        read_all(connection, record, 5);
        size_t length = record[3] << 8 | record[4];
        read_all(connection, record + 5, length);
        if (record[0] == HANDSHAKE || record[0] == APPLICATION)
            return length;
    } while (record[0] != ALERT);
    fprintf(stderr, "the server sent alert %d\n", record[6]);
    exit(1);
}

static void shake_hands(int connection, EVP_CIPHER_CTX *cipher) {
    uint8_t record[5 + MOST], transcript[MOST], hash[HASH], iv[IV];
    size_t said = sizeof client_hello - 5;
    memcpy(transcript, client_hello + 5, said);
    if (write(connection, client_hello, sizeof client_hello) != sizeof client_hello)
        fail("write");

    size_t length = read_record(connection, record);
    if (record[0] != HANDSHAKE || record[5] != SERVER_HELLO)
        fail("no server hello");
    memcpy(transcript + said, record + 5, length);
    said += length;
    // Its extensions come after a session's number, a suite and a compression.
    const uint8_t *share = NULL, *extension = record + 5 + 38 + 1 + record[5 + 38] + 3 + 2;
    for (; extension < record + 5 + length; extension += 4 + (extension[2] << 8 | extension[3]))
        if (extension[0] == 0 && extension[1] == 51)
            share = extension + 8;
    if (!share)
        fail("no key in the server hello");

    uint8_t none[HASH] = {0}, early[HASH], derived[HASH], shared[SHARE], secret[HASH];
    size_t shared_length = SHARE;
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, share, SHARE);
    EVP_PKEY_CTX *exchange = EVP_PKEY_CTX_new(own_key, NULL);
    if (!other || EVP_PKEY_derive_init(exchange) != 1 || EVP_PKEY_derive_set_peer(exchange, other) != 1 ||
        EVP_PKEY_derive(exchange, shared, &shared_length) != 1)
        fail("X25519");
    EVP_PKEY_CTX_free(exchange);
    EVP_PKEY_free(other);
    extract(none, none, early);
    expand(early, "derived", SHA256(NULL, 0, hash), derived, HASH);
    extract(derived, shared, secret);
    struct keys servers, own;
    SHA256(transcript, said, hash);
    derive(&servers, secret, "s hs traffic", hash);
    derive(&own, secret, "c hs traffic", hash);

    // Messages up to the server's Finished, of which only the lengths matter.
    for (size_t message = said, is_last = 0; !is_last;) {
        length = read_record(connection, record);
        if (record[0] != APPLICATION || length < TAG || said + length > MOST)
            fail("an unexpected record");
        int count;
        size_t text = length - TAG;
        nonce(&servers, iv);
        if (EVP_DecryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, servers.key, iv) != 1 ||
            EVP_DecryptUpdate(cipher, NULL, &count, record, 5) != 1 ||
            EVP_DecryptUpdate(cipher, transcript + said, &count, record + 5, (int)text) != 1 ||
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, TAG, record + 5 + text) != 1 ||
            EVP_DecryptFinal_ex(cipher, hash, &count) != 1)
            fail("a record that is not the server's");
        // The last byte is the type.
        said += text - 1;
        while (!is_last && message + 4 <= said) {
            const uint8_t *it = transcript + message;
            size_t end = message + 4 + (it[1] << 16 | it[2] << 8 | it[3]);
            if (end > said)
                break;
            is_last = it[0] == FINISHED;
            message = end;
        }
    }

    uint8_t finished[4 + HASH + 1] = {FINISHED, 0, 0, HASH}, key[HASH];
    expand(own.secret, "finished", NULL, key, HASH);
    HMAC(EVP_sha256(), key, HASH, SHA256(transcript, said, hash), HASH, finished + 4, NULL);
    finished[4 + HASH] = HANDSHAKE;
    const uint8_t header[5] = {APPLICATION, 3, 3, 0, sizeof finished + TAG};
    memcpy(record, header, 5);
    int count;
    nonce(&own, iv);
    if (EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, own.key, iv) != 1 ||
        EVP_EncryptUpdate(cipher, NULL, &count, header, 5) != 1 ||
        EVP_EncryptUpdate(cipher, record + 5, &count, finished, sizeof finished) != 1 ||
        EVP_EncryptFinal_ex(cipher, hash, &count) != 1 ||
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG, record + 5 + sizeof finished) != 1)
        fail("AES");
    if (write(connection, record, 5 + sizeof finished + TAG) != 5 + sizeof finished + TAG)
        fail("write");
    // The server answers with tickets. An alert would be shorter.
    if (read_record(connection, record) <= 3 + TAG)
        fail("the server did not accept the handshake");
}

static void *client(void *unused) {
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    while (atomic_fetch_sub(&left, 1) > 0) {
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connection < 0 || connect(connection, (struct sockaddr *)&server, sizeof server))
            fail("connect");
        setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        shake_hands(connection, cipher);
        close(connection);
    }
    EVP_CIPHER_CTX_free(cipher);
    return unused;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: %s PORT CLIENTS HANDSHAKES\n", arguments[0]);
        return 2;
    }
    int clients = atoi(arguments[2]);
    long handshakes = atol(arguments[3]);
    server.sin_port = htons(atoi(arguments[1]));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    left = handshakes;
    size_t length = SHARE;
    own_key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    if (!own_key || EVP_PKEY_get_raw_public_key(own_key, client_hello + sizeof client_hello - SHARE, &length) != 1)
        fail("X25519");

    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    pthread_t threads[clients];
    for (int i = 0; i < clients; i++)
        if (pthread_create(&threads[i], NULL, client, NULL))
            fail("pthread_create");
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    printf("%ld handshakes in %.3f s\n", handshakes, seconds);
}
