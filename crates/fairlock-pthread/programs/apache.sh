#!/bin/sh
# Apache serves a page by TLS: sh apache.sh [REQUESTS]
#
# One process with threads. Each request is a connection of its own, so OpenSSL looks up its
# methods and counts its references under its read locks in all threads at once.
. "$(dirname "$0")/scratch.sh"
needs apache2 apache2
needs ab apache2-utils
needs openssl openssl
port=8443 requests=${1:-3000}

mkdir "$folder/pages"
chmod 755 "$folder" # Workers of a server that is started by root are others.
awk 'BEGIN { for (n = 0; n < 100; n++) print "the same line" }' >"$folder/pages/page.txt"
env -u LD_PRELOAD openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
    -keyout "$folder/key.pem" -out "$folder/certificate.pem" >/dev/null 2>&1
{
    for module in mpm_event authz_core ssl socache_shmcb; do
        printf 'LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n' $module $module
    done
    [ "$(id -u)" != 0 ] || printf 'User www-data\nGroup www-data\n'
    cat <<END
ServerRoot $folder
ServerName localhost
PidFile $folder/apache.pid
ErrorLog $folder/error.log
DocumentRoot $folder/pages
Listen 127.0.0.1:$port
Mutex file:$folder
StartServers 1
ServerLimit 1
ThreadsPerChild 8
MaxRequestWorkers 8
MinSpareThreads 1
MaxSpareThreads 8
MaxConnectionsPerChild 0
SSLEngine on
SSLCertificateFile $folder/certificate.pem
SSLCertificateKeyFile $folder/key.pem
SSLSessionCache none
END
} >"$folder/apache.conf"

daemon apache2 -f "$folder/apache.conf" -DFOREGROUND
url=https://127.0.0.1:$port/page.txt
await ab -q -n 1 $url
timeout 60 ab -q -c 8 -n "$requests" $url >"$folder/answers"
sed -n 's/^Requests per second: *\([0-9.]*\).*/\1 requests per second/p' "$folder/answers" >&2
sed -n 's/^\(Document Length\|Complete requests\|Failed requests\|HTML transferred\): */\1: /p' "$folder/answers"
