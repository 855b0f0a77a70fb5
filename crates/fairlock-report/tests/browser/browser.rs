//! Headless Chromium, driven through its own protocol (Chrome DevTools Protocol) over two
//! pipes, on which a zero byte ends each message.

// Two test programs use this file, and neither all of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

/// Names under which distributions install it.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Longer than anything in a test takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Chromium reads what it is told from descriptor 3 and answers on 4. The rest of its output is dropped.
const PIPES_AT_3_AND_4: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Vec<u8>>,
    session: String,
    last_id: u64,
    events: VecDeque<Value>,
    _profile: tempfile::TempDir,
}

/// Of a file; what may stand for something else in one is written as its number.
fn url_of(path: &[u8]) -> String {
    let mut url = "file://".to_owned();
    for &byte in path {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => url.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => url.push(byte.into()),
            _ => write!(url, "%{byte:02X}").expect("a text"),
        }
    }
    url
}

impl Browser {
    /// Starts one; none where no Chromium is installed.
    pub fn start() -> Option<Browser> {
        let program = PROGRAMS.into_iter().find(|program| {
            let found = Command::new(program).arg("--version").output();
            found.is_ok_and(|output| output.status.success())
        })?;
        let profile = tempfile::tempdir().expect("a folder");
        let mut child = Command::new("sh")
            .args(["-c", PIPES_AT_3_AND_4, program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--no-first-run", "--disable-extensions"])
            .args(["--remote-debugging-pipe", "--no-startup-window"])
            .arg("--force-color-profile=srgb")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a browser that can start");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            let received = output.split(0).map_while(Result::ok);
            received.map(|message| sender.send(message)).take_while(Result::is_ok).for_each(drop);
        });
        let (session, events) = (String::new(), VecDeque::new());
        let mut browser =
            Browser { child, input, messages, session, last_id: 0, events, _profile: profile };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol, and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let answer = self.receive();
            if answer["id"] == json!(self.last_id) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn receive(&self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
        serde_json::from_slice(&message).expect("JSON")
    }

    /// Makes the window so wide, in light or dark.
    pub fn show_as(&mut self, width: u32, height: u32, is_dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, path: &Path) {
        self.open_at(path, "");
    }

    /// Opens a file at the place of this name and waits until it is loaded.
    pub fn open_at(&mut self, path: &Path, id: &str) {
        self.events.clear();
        let hash = if id.is_empty() { String::new() } else { format!("#{id}") };
        let url = url_of(path.as_os_str().as_bytes());
        self.call("Page.navigate", json!({"url": format!("{url}{hash}")}));
        self.wait_until("location.protocol === 'file:' && document.readyState === 'complete'");
    }

    /// Opens the same file again.
    pub fn reload(&mut self) {
        let path = self.evaluate("decodeURIComponent(location.pathname)");
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.wait_until("location.protocol === 'about:'");
        self.open(Path::new(path.as_str().expect("a path")));
        self.wait_for_charts();
    }

    /// Waits until this is true in the page.
    pub fn wait_until(&mut self, condition: &str) {
        let end = Instant::now() + PATIENCE;
        while self.evaluate(condition) != json!(true) {
            assert!(Instant::now() < end, "never true: {condition}; errors: {:?}", self.errors());
            // A frame is drawn meanwhile; charts are, too.
            self.evaluate("new Promise(drawn => requestAnimationFrame(() => setTimeout(drawn)))");
        }
    }

    /// Waits until every chart that can be seen is drawn for the width that it has.
    pub fn wait_for_charts(&mut self) {
        self.wait_until(
            "[...document.querySelectorAll('figure.chart')].every(figure => {
                const width = figure.querySelector('.picture').clientWidth;
                return !figure.checkVisibility() || figure.drawnAt === width;
            })",
        );
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// What the page complained about since it was opened.
    pub fn errors(&mut self) -> Vec<String> {
        let is_error = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                ["error", "warning"].iter().any(|kind| event["params"]["type"] == *kind)
            }
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_error).map(|event| event["params"].to_string()).collect()
    }

    /// What can be seen, or the first element that this chooses, at most 1500 pixels of its height; as WebP.
    pub fn picture(&mut self, of: Option<&str>) -> Vec<u8> {
        let mut params = json!({"format": "webp", "quality": 82});
        if let Some(selector) = of {
            let place = format!(
                "(() => {{
                    const box = document.querySelector({selector:?}).getBoundingClientRect();
                    return {{x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: Math.min(box.height, 1500), scale: 1}};
                }})()"
            );
            params["clip"] = self.evaluate(&place);
            params["captureBeyondViewport"] = json!(true);
        }
        let answer = self.call("Page.captureScreenshot", params);
        let data = answer["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(data).expect("base64")
    }

    /// Moves the mouse there.
    pub fn point_at(&mut self, x: f64, y: f64) {
        let params = json!({"type": "mouseMoved", "x": x, "y": y});
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        let code = match key {
            "Enter" => 13,
            "ArrowRight" => 39,
            _ => 0,
        };
        let params = json!({"type": "keyDown", "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", params);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "code": key}));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
