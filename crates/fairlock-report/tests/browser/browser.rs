//! Headless Chromium, driven through its own protocol (Chrome DevTools Protocol) over one WebSocket.

// Two test programs use this file, and neither all of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// Names under which distributions install it.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Longer than anything in a test takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one page.
pub struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    last_id: u64,
    events: VecDeque<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; none where no Chromium is installed.
    pub fn start() -> Option<Browser> {
        let program = PROGRAMS.into_iter().find(|program| {
            let found = Command::new(program).arg("--version").output();
            found.is_ok_and(|output| output.status.success())
        })?;
        let profile = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--no-first-run", "--disable-extensions"])
            .args(["--remote-debugging-port=0", "--force-color-profile=srgb"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a browser that can start");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let address = stderr
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ws://").map(str::to_owned));
        let address = address.expect("the browser says where it listens");
        let (host, _) = address.split_once('/').expect("a path after the port");
        let stream = TcpStream::connect(host).expect("a browser that listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (socket, _) =
            tungstenite::client(format!("ws://{address}"), stream).expect("a WebSocket");
        let (session, events) = (String::new(), VecDeque::new());
        let mut browser = Browser { child, socket, session, last_id: 0, events, _profile: profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().expect("a list").iter();
        let page = targets.clone().find(|target| target["type"] == "page").expect("a page");
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
        self.socket.send(Message::text(message.to_string())).expect("the browser reads");
        loop {
            let answer = self.receive();
            if answer["id"] == json!(self.last_id) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().expect("the browser answers") {
                return serde_json::from_str(&text).expect("JSON");
            }
        }
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
        self.call("Page.navigate", json!({"url": format!("file://{}{hash}", path.display())}));
        self.wait_until("location.protocol === 'file:' && document.readyState === 'complete'");
    }

    /// Opens the same file again.
    pub fn reload(&mut self) {
        let path = self.evaluate("location.pathname");
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
