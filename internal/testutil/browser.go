//go:build unix

package testutil

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Browser is a headless Chromium controlled by the DevTools protocol over two pipes.
type Browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
	// problems are console messages and network requests of the pages. They fail the test.
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

// StartBrowser starts Chromium, or skips the test if there is none.
func StartBrowser(t *testing.T) *Browser {
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
	b := &Browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20)}
	// Kill the process group of a hanging browser at the end of the test.
	deadline := time.AfterFunc(5*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	t.Cleanup(func() {
		for _, p := range b.problems {
			t.Errorf("the console, or the network: %s", p)
		}
		to.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		from.Close()
		deadline.Stop()
	})
	b.attach()
	return b
}

// attach opens the tab for all pages.
func (b *Browser) attach() {
	b.t.Helper()
	var target struct{ TargetID string }
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.Call(domain+".enable", nil, nil)
	}
}

// Call sends a command and waits for its response.
func (b *Browser) Call(method string, params, result any) {
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

// until reads messages, passes each to watch, and returns the first that is wanted.
func (b *Browser) until(wanted func(*message) bool) *message {
	b.t.Helper()
	for {
		text, err := b.from.ReadBytes(0)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the browser ended, or took longer than two minutes")
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

// watch records console messages and network requests.
func (b *Browser) watch(m *message) {
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

// Look is the configuration of a page view: size, colour scheme and medium.
type Look struct {
	Name   string
	Width  int
	Scheme string // light, dark
	Media  string // "" for a screen, or print
}

// Open loads a file.
func (b *Browser) Open(path string, l Look) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": l.Width, "height": 900, "deviceScaleFactor": 1, "mobile": l.Width < 600}, nil)
	b.Call("Emulation.setEmulatedMedia", map[string]any{
		"media": l.Media, "features": []map[string]string{{"name": "prefers-color-scheme", "value": l.Scheme}},
	}, nil)
	b.Call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	b.until(func(m *message) bool { return m.Method == "Page.loadEventFired" })
}

// Eval evaluates an expression in the page and decodes its value.
func (b *Browser) Eval(expression string, into any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("in the page: %s", r.ExceptionDetails.Exception.Description)
	}
	if into != nil {
		if err := json.Unmarshal(r.Result.Value, into); err != nil {
			b.t.Fatalf("in the page: %v of %s", err, r.Result.Value)
		}
	}
}

// Inspect loads a page bright and dark, on a telephone and on paper. It fails the test if the
// brightness of a picture is wrong, or if the audit finds something. FABRICTEST_SHOTS names
// a folder for the pictures, which are height pixels high.
func (b *Browser) Inspect(name, path string, height int) {
	b.t.Helper()
	for _, l := range []Look{
		{Name: name + " light", Width: 1280, Scheme: "light"},
		{Name: name + " dark", Width: 1280, Scheme: "dark"},
		{Name: name + " phone", Width: 390, Scheme: "dark"},
		{Name: name + " paper", Width: 718, Scheme: "dark", Media: "print"}, // A4 less its margins
	} {
		b.Open(path, l)
		bright := b.Shoot(l, height)
		if light := l.Scheme == "light" || l.Media == "print"; light && bright < 0.8 || !light && bright > 0.4 {
			b.t.Errorf("%s: the brightness is %v", l.Name, bright)
		}
		b.Audit(l.Name)
	}
}

// screenshot returns the page as PNG, limited to maxHeight.
func (b *Browser) screenshot(l Look, maxHeight int) []byte {
	b.t.Helper()
	height := 0
	b.Eval("Math.ceil(document.documentElement.scrollHeight)", &height)
	var r struct{ Data string }
	b.Call("Page.captureScreenshot", map[string]any{
		"captureBeyondViewport": true,
		"clip":                  map[string]any{"x": 0, "y": 0, "width": l.Width, "height": min(height, maxHeight), "scale": 1},
	}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// Shoot takes a screenshot and returns its mean brightness, from 0 to 1. It saves the
// picture if FABRICTEST_SHOTS names a folder.
func (b *Browser) Shoot(l Look, height int) float64 {
	b.t.Helper()
	data := b.screenshot(l, height)
	if dir := os.Getenv("FABRICTEST_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, l.Name+".png"), data, 0o666); err != nil {
			b.t.Fatal(err)
		}
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	sum, n := 0.0, 0.0
	colours := map[uint32]bool{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 4 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 4 {
			r, g, bl, _ := img.At(x, y).RGBA()
			sum += float64(r+g+bl) / 3 / 0xffff
			n++
			colours[r>>12<<8|g>>12<<4|bl>>12] = true
		}
	}
	if len(colours) < 8 {
		b.t.Errorf("%s: the screenshot has only %d colours", l.Name, len(colours))
	}
	return sum / n
}

//go:embed audit.js
var audit string

// Audit runs audit.js in the page. The problems that it finds fail the test.
func (b *Browser) Audit(name string) {
	b.t.Helper()
	var wrong []string
	b.Eval(audit, &wrong)
	for _, w := range wrong {
		b.t.Errorf("%s: %s", name, w)
	}
}
