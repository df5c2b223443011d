// Package browser looks at report pages in a headless Chromium. Only tests of the report
// packages use it.
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

// Start starts Chromium, or skips the test if there is none.
func Start(t *testing.T) *Browser {
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	b := &Browser{t, ctx}
	console, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	var watchers sync.WaitGroup
	watchers.Go(func() {
		for m, err := range console {
			if err == nil {
				t.Errorf("on the console of a page: %v", m)
			}
		}
	})
	watchers.Go(func() {
		for r, err := range requests {
			if err == nil && !strings.HasSuffix(r.Request.URL, ".html") && r.Request.URL != "about:blank" {
				t.Errorf("a page asks for %s", r.Request.URL)
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

// call sends a command to the tab and returns its result.
func call[P, R any](b *Browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return r
}

// RunScripts says whether pages that are opened from now on run scripts.
func (b *Browser) RunScripts(on bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
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
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: int64(l.Width), Height: 900, DeviceScaleFactor: 1, Mobile: l.Width < 600,
	})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: l.Media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.Scheme}},
	})
	if err := chromedp.Do(b.ctx, chromedp.Navigate("file://"+path)); err != nil {
		b.t.Fatal(err)
	}
}

// Eval evaluates an expression in the page and decodes its value.
func (b *Browser) Eval(expression string, into any) {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]byte](expression))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		b.t.Fatalf("in the page: %v", err)
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
	clip := &page.Viewport{Width: float64(l.Width), Height: float64(min(height, maxHeight)), Scale: 1}
	return call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: new(true), Clip: clip}).Data
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
