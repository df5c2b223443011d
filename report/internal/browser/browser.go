//go:build browser

// Package browser checks report pages in a headless Chromium, for tests of the report packages with
// the build tag browser. Without the tag, go test needs not compile the client of Chromium.
package browser

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Browser is a headless Chromium with one tab. A message on the console of a page and a
// request to the network fail the test.
type Browser struct {
	t   *testing.T
	ctx context.Context
}

// Start starts Chromium, which runs until the test ends. It skips the test if Chromium is not
// installed. A console message of a page fails the test, and so does a request for anything but an
// HTML file.
func Start(t *testing.T) *Browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium, chromium-browser or google-chrome on PATH: install one (apt install chromium) to check the page")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	b := &Browser{t, ctx}
	console, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	var watchers sync.WaitGroup
	watchers.Go(func() {
		for m, err := range console {
			if err == nil {
				t.Errorf("a page writes to the console: %v", m)
			}
		}
	})
	watchers.Go(func() {
		for r, err := range requests {
			if err == nil && !strings.HasSuffix(r.Request.URL, ".html") && r.Request.URL != "about:blank" {
				t.Errorf("a page requests %s", r.Request.URL)
			}
		}
	})
	t.Cleanup(func() {
		closeTab()
		stop()
		watchers.Wait()
	})
	call(b, network.Enable, network.EnableParams{})
	return b
}

// call sends a DevTools command to the tab and returns its result. An error ends the test.
func call[P, R any](b *Browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return r
}

// EnableScripts enables or disables the scripts of pages that are opened from now on.
func (b *Browser) EnableScripts(on bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// Look is how a page is displayed: width, colour scheme and medium.
type Look struct {
	Name   string // of the screenshot, and in messages
	Width  int
	Scheme string // light, dark
	Media  string // "" for a screen, or print
}

// Open loads the HTML file at an absolute path, with the width, colour scheme and medium of l.
func (b *Browser) Open(path string, l Look) {
	const maxPhoneWidth = 600 // pixels
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: int64(l.Width), Height: 900, DeviceScaleFactor: 1, Mobile: l.Width < maxPhoneWidth,
	})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: l.Media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.Scheme}},
	})
	if err := chromedp.Do(b.ctx, chromedp.Navigate("file://"+path)); err != nil {
		b.t.Fatal(err)
	}
}

// Eval evaluates a JavaScript expression in the page and stores its value, decoded from JSON, in
// the variable that result points to. An error ends the test.
func (b *Browser) Eval(expression string, result any) {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]byte](expression))
	if err == nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		b.t.Fatalf("evaluate JavaScript in the page: %v", err)
	}
}

// Inspect loads the page at path in a light and a dark colour scheme, in the width of a phone, and
// as printed. The test fails if the brightness of a screenshot does not fit the colour scheme
// (print is always light), or if Audit finds problems. Screenshots show the top maxHeight pixels.
func (b *Browser) Inspect(name, path string, maxHeight int) {
	b.t.Helper()
	for _, l := range []Look{
		{Name: name + " light", Width: 1280, Scheme: "light"},
		{Name: name + " dark", Width: 1280, Scheme: "dark"},
		{Name: name + " phone", Width: 390, Scheme: "dark"},
		{Name: name + " paper", Width: 718, Scheme: "dark", Media: "print"}, // A4 less its margins
	} {
		b.Open(path, l)
		brightness := b.Screenshot(l, maxHeight)
		if light := l.Scheme == "light" || l.Media == "print"; light && brightness < 0.8 || !light && brightness > 0.4 {
			b.t.Errorf("%s: the mean brightness is %v", l.Name, brightness)
		}
		b.Audit(l.Name)
	}
}

// capturePNG returns the top of the page, l.Width pixels wide and at most maxHeight pixels high, as
// a PNG image.
func (b *Browser) capturePNG(l Look, maxHeight int) []byte {
	b.t.Helper()
	height := 0
	b.Eval("Math.ceil(document.documentElement.scrollHeight)", &height)
	clip := &page.Viewport{Width: float64(l.Width), Height: float64(min(height, maxHeight)), Scale: 1}
	return call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: new(true), Clip: clip}).Data
}

// Screenshot takes a screenshot of the open page, at most maxHeight pixels high, and returns its
// mean brightness, 0 to 1. l is the size and colour scheme with which [Browser.Open] opened the page.
// If FABRICTEST_SHOTS names a folder, Screenshot saves the image there under l.Name. The test fails
// if the image has few colours (is almost blank).
func (b *Browser) Screenshot(l Look, maxHeight int) float64 {
	b.t.Helper()
	data := b.capturePNG(l, maxHeight)
	if dir := os.Getenv("FABRICTEST_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, l.Name+".png"), data, 0o666); err != nil {
			b.t.Fatal(err)
		}
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	sum, pixels := 0.0, 0.0
	colours := map[uint32]bool{}  // with four bits for each of red, green and blue
	const step, minColours = 4, 8 // the brightness is that of each fourth pixel of each fourth line
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += step {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += step {
			red, green, blue, _ := img.At(x, y).RGBA() // 16 bits each
			sum += float64(red+green+blue) / 3 / 0xffff
			pixels++
			colours[red>>12<<8|green>>12<<4|blue>>12] = true
		}
	}
	if len(colours) < minColours {
		b.t.Errorf("%s: the screenshot has only %d colours", l.Name, len(colours))
	}
	return sum / pixels
}

//go:embed audit.js
var audit string

// Audit evaluates the script audit.js in the page. The script returns a list of problems. Each
// problem fails the test, with a message that begins with name.
func (b *Browser) Audit(name string) {
	b.t.Helper()
	var problems []string
	b.Eval(audit, &problems)
	for _, problem := range problems {
		b.t.Errorf("%s: %s", name, problem)
	}
}
