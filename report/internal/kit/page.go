package kit

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

var (
	//go:embed shell.gohtml
	pageTemplate string
	//go:embed base.css
	baseCSS string
	//go:embed base.js
	baseJS string
)

// Page is the data of a page's header and footer. The data of a page embeds it.
type Page struct {
	Title    string
	About    string // the kind of page
	Headline string
	Counts   []Share // the bar of verdicts
	Facts    Facts
	Filter   string        // placeholder of the filter
	Results  string        // the JSON file next to the page
	Cover    template.HTML // the part before the header, escaped by html/template

	CSS    template.CSS
	JS     template.JS
	JSHash string // SHA-256 of JS in base64, for the content security policy
}

// basePage returns the Page, for Layout.Write, whose data embeds it.
func (p *Page) basePage() *Page { return p }

// Share is a segment of a bar: a state or verdict and its number of results.
type Share struct {
	State string
	N     int
}

// Bar returns a segment of a bar for each state whose count is not 0, in the given order, and the
// counts as texts such as "3 passed". names has the names of the states for the texts.
func Bar[S ~string](counts map[S]int, order []S, names map[S]string) (shares []Share, text []string) {
	for _, s := range order {
		if n := counts[s]; n > 0 {
			shares, text = append(shares, Share{string(s), n}), append(text, fmt.Sprintf("%d %s", n, names[s]))
		}
	}
	return shares, text
}

// Facts are names and values below the headline.
type Facts []Fact

// Fact is a name and a value.
type Fact struct {
	Name, Value string
	Code        bool // shown as code
}

// Add adds a fact unless its value is empty.
func (f *Facts) Add(name, value string) {
	if value != "" {
		*f = append(*f, Fact{Name: name, Value: value})
	}
}

// AddCommand adds a fact that is shown as code, unless its value is empty.
func (f *Facts) AddCommand(name, value string) {
	if value != "" {
		*f = append(*f, Fact{Name: name, Value: value, Code: true})
	}
}

// Stamp formats a date and a time in UTC.
func Stamp(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

// Layout is a kind of page: the shell with a template "content", a style and a script. A page
// is one file with inline style, script and drawings, which loads nothing from the network.
type Layout struct {
	template func() *template.Template // parses it at the first call: most processes write no page
	css, js  string
}

// NewLayout returns a layout: the style, script and templates that all pages share, and in addition
// the style css, the script js and the templates texts, which use funcs.
func NewLayout(css, js string, funcs template.FuncMap, texts ...string) *Layout {
	parse := sync.OnceValue(func() *template.Template {
		t := template.Must(template.New("page").Funcs(funcs).Parse(pageTemplate))
		for _, text := range texts {
			template.Must(t.Parse(text))
		}
		return t
	})
	return &Layout{parse, baseCSS + css, baseJS + js}
}

// Write writes a page. It sets the CSS, JS and JSHash (for the content security policy) of the Page
// that data embeds; css is added to the style of the layout.
func (l *Layout) Write(w io.Writer, data interface{ basePage() *Page }, css string) error {
	p := data.basePage()
	hash := sha256.Sum256([]byte(l.js))
	p.CSS, p.JS, p.JSHash = template.CSS(l.css+css), template.JS(l.js), base64.StdEncoding.EncodeToString(hash[:])
	var b bytes.Buffer
	if err := l.template().Execute(&b, data); err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	// The template escapes HTML. Control and invisible characters are made visible at the
	// end, wherever they came from.
	_, err := io.WriteString(w, cli.Printable(b.String()))
	return err
}

// Anchors makes unique HTML IDs.
type Anchors map[string]int

// Of returns an HTML ID made of names: joined by dots, with other characters than letters, digits
// and "-_." replaced, cut to 100 bytes, and with a number if the ID is in use.
func (a Anchors) Of(names ...string) string {
	id := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			return c
		}
		return '-'
	}, strings.Join(names, "."))
	id = id[:min(len(id), 100)]
	unique := id
	for a[unique] > 0 {
		a[id]++
		unique = fmt.Sprintf("%s.%d", id, a[id])
	}
	a[unique]++
	return unique
}

// Href returns a link to a file in the folder of the page; empty if the path leads outside.
func Href(path string) string {
	if !filepath.IsLocal(filepath.FromSlash(path)) {
		return ""
	}
	return (&url.URL{Path: path}).String()
}

// Clip truncates a text of more than n bytes to n, and appends a note.
func Clip(s string, n int, note string) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + note
}
