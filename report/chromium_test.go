//go:build unix

package report_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// browser is a Chromium that is spoken to through a pair of pipes, in the
// DevTools protocol: one process for all pages, no port, no window.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
	// problems are what the pages wrote to the console or asked of the network.
	problems []string
}

// message is a reply, or an event if it has a Method.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser skips the test where there is no browser.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	if os.Getenv("FABRICTEST_NO_BROWSER") != "" {
		t.Skip("FABRICTEST_NO_BROWSER is set: the page is not looked at in a browser")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium, chromium-browser or google-chrome on PATH: install one (apt install chromium) to look at the page")
	}
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20)}
	// A browser that hangs must not hang the tests: its group ends with them.
	deadline := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	t.Cleanup(func() {
		to.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		from.Close()
		deadline.Stop()
	})
	b.attach()
	return b
}

// attach opens the one tab that is used for everything.
func (b *browser) attach() {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
}

// call asks for something and waits for the answer.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.last++
	id := b.last
	request := map[string]any{"id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	m := b.until(func(m *message) bool { return m.ID == id })
	if m.Error != nil {
		b.t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
	}
}

// until reads messages up to one that is wanted, and keeps an eye on the others.
func (b *browser) until(wanted func(*message) bool) *message {
	b.t.Helper()
	for {
		text, err := b.from.ReadBytes(0)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it ended, or took longer than two minutes")
			}
			b.t.Fatalf("the browser does not answer: %v", err)
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.t.Fatal(err)
		}
		b.watch(&m)
		if wanted(&m) {
			return &m
		}
	}
}

// watch notes what a page should not do.
func (b *browser) watch(m *message) {
	switch m.Method {
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening":
		b.problems = append(b.problems, m.Method+": "+string(m.Params))
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		if json.Unmarshal(m.Params, &p) == nil && !strings.HasSuffix(p.Request.URL, ".html") && p.Request.URL != "about:blank" {
			b.problems = append(b.problems, "asked for "+p.Request.URL)
		}
	}
}

// look is how a page is looked at.
type look struct {
	name   string
	width  int
	scheme string // light, dark
	media  string // "" for a screen, or print
}

// open shows a file.
func (b *browser) open(path string, l look) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": l.width, "height": 900, "deviceScaleFactor": 1, "mobile": l.width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"media": l.media, "features": []map[string]string{{"name": "prefers-color-scheme", "value": l.scheme}},
	}, nil)
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	b.until(func(m *message) bool { return m.Method == "Page.loadEventFired" })
}

// eval evaluates an expression in the page, and decodes its value.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("in the page: %s", r.ExceptionDetails.Exception.Description)
	}
	if into != nil {
		if err := json.Unmarshal(r.Result.Value, into); err != nil {
			b.t.Fatalf("in the page: %v of %s", err, r.Result.Value)
		}
	}
}

// screenshot is the whole page as PNG, down to maxHeight.
func (b *browser) screenshot(l look, y, maxHeight int) []byte {
	b.t.Helper()
	height := 0
	b.eval("Math.ceil(document.documentElement.scrollHeight)", &height)
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{
		"captureBeyondViewport": true,
		"clip":                  map[string]any{"x": 0, "y": y, "width": l.width, "height": min(height-y, maxHeight), "scale": 1},
	}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}
