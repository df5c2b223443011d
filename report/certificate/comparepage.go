package certificate

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/page"
)

var (
	//go:embed page/compare.gohtml
	compareText string
	//go:embed page/compare.css
	compareCSS string
	//go:embed page/compare.js
	compareJS string

	compareTemplate = template.Must(template.New("compare").Funcs(template.FuncMap{"short": func(s State) string { return shortWords[s] }}).Parse(compareText))
)

// comparedPage is what the template sees of a comparison.
type comparedPage struct {
	page.Style
	Headline  string
	Devices   []*deviceLine
	Signs     []sign  // that occur
	Picks     []State // that the clauses can be sifted by
	Differ    []*comparedDocument
	Documents []*comparedDocument
	Overview  []*documentLine
}

// documentLine is how all devices fared under a document; nothing for those that it is
// not for.
type documentLine struct {
	Title, Anchor string
	Shares        [][]share
}

// deviceLine is a device in the table of all of them.
type deviceLine struct {
	Column
	About  []string
	Words  string // the outcome
	Href   string // to its own page
	Levels []levelLine
}

// levelLine is how the clauses of a level fared.
type levelLine struct {
	Level  string
	Shares []share
	Words  string
}

type share struct {
	State State
	N     int
}

// sign is a state, and what it is called.
type sign struct {
	State State
	Words string
}

// stateWords are the states for people.
var stateWords = map[State]string{
	Pass: "met", Fail: "not met", Deviates: "not met, on record", Stale: "met, and on record as not", Broken: "could not be judged",
	Unsupported: "not supported", NotAsked: "not asked", Untestable: "untestable",
}

// shortWords are the same where there is little room.
var shortWords = map[State]string{
	Pass: "met", Fail: "not met", Deviates: "on record", Stale: "stale", Broken: "not judged", Unsupported: "not supported", NotAsked: "not asked",
	Untestable: "untestable",
}

// barOrder is that of the parts of a bar: what needs attention comes first.
var barOrder = []State{Broken, Fail, Stale, Deviates, Pass, Unsupported, NotAsked}

// WriteHTML writes the comparison as one page that needs nothing else. dir is where it
// will stand, for links to the pages of the devices; without it there are none.
func (c *Comparison) WriteHTML(w io.Writer, dir string) error {
	p := &comparedPage{Style: page.NewStyle(page.VerdictCSS()+compareCSS, compareJS)}
	hrefs := c.pages(dir)
	for i := range c.Columns {
		p.Devices = append(p.Devices, newDeviceLine(&c.Columns[i], hrefs[i]))
	}
	p.Documents = c.documents(hrefs, func(*Compared) bool { return true })
	p.Differ = c.documents(hrefs, (*Compared).Differs)
	p.overview(len(c.Columns))
	differ := 0
	for _, d := range p.Differ {
		differ += d.N
	}
	p.Headline = fmt.Sprintf("%s, and %s that some meet and others do not", units.Plural(len(c.Columns), "device"), units.Plural(differ, "clause"))
	p.signs(c)
	var b bytes.Buffer
	if err := compareTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	_, err := io.WriteString(w, printable.Text(b.String()))
	return err
}

// overview sums the documents up.
func (p *comparedPage) overview(columns int) {
	for i, d := range p.Documents {
		d.Anchor = fmt.Sprintf("d%d", i+1)
		line := &documentLine{Title: d.Title, Anchor: d.Anchor, Shares: make([][]share, columns)}
		for at, k := range d.Columns {
			n := make(map[State]int)
			for _, s := range d.Sections {
				for _, e := range s.Clauses {
					n[e.Cells[at]]++
				}
			}
			line.Shares[k] = shares(n)
		}
		p.Overview = append(p.Overview, line)
	}
}

// signs finds out which states occur.
func (p *comparedPage) signs(c *Comparison) {
	for _, s := range append(slices.Clone(barOrder), Untestable) {
		if !slices.ContainsFunc(c.Clauses, func(e Compared) bool { return slices.Contains(e.States, s) }) {
			continue
		}
		p.Signs = append(p.Signs, sign{s, stateWords[s]})
		if s != Untestable {
			p.Picks = append(p.Picks, s)
		}
	}
}

// pages are the devices' own, as links from a page in dir; empty where there is no way.
func (c *Comparison) pages(dir string) []string {
	all := make([]string, len(c.Columns))
	from, err := filepath.Abs(dir)
	if dir == "" || err != nil {
		return all
	}
	for i := range c.Columns {
		to, err := filepath.Abs(filepath.Join(c.Columns[i].From, c.Columns[i].Page))
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(from, to); err == nil {
			all[i] = (&url.URL{Path: filepath.ToSlash(rel)}).String()
		}
	}
	return all
}

// tiers are where devices were judged, for people.
var tiers = map[string]string{"sim": "emulated, in virtual time", "netns": "emulated, on sockets", "wire": "on its own wire"}

func newDeviceLine(col *Column, href string) *deviceLine {
	d := &deviceLine{Column: *col, Words: words[col.Outcome], Href: href}
	// Of the kernel its release is enough here.
	kernel, _, _ := strings.Cut(col.Kernel, " ")
	if kernel != "" {
		kernel = "Linux " + kernel
	}
	for _, s := range []string{col.Transport, kernel, tiers[col.Tier]} {
		if s != "" {
			d.About = append(d.About, s)
		}
	}
	for _, l := range levels {
		line := levelLine{Level: l}
		var said []string
		for _, s := range barOrder {
			if n := col.count(l, s); n > 0 {
				line.Shares = append(line.Shares, share{s, n})
				said = append(said, fmt.Sprintf("%d %s", n, stateWords[s]))
			}
		}
		if line.Words = strings.Join(said, " · "); line.Words != "" {
			d.Levels = append(d.Levels, line)
		}
	}
	return d
}

// comparedDocument is a document and the devices that fall under it.
type comparedDocument struct {
	Title    string
	Anchor   string
	Columns  []int // of the comparison
	Names    []string
	Sections []*comparedSection
	N        int // clauses
}

type comparedSection struct {
	Title   string
	Names   []string  // of the document's devices
	Shares  [][]share // of each of the document's devices
	Clauses []*clauseLine
}

// clauseLine is a clause on the devices that fall under its document.
type clauseLine struct {
	*Compared
	Cells  []State
	Sifted string // what it can be found by: states, with and without the device
	Notes  []*noteLine
}

// noteLine is a remark.
type noteLine struct {
	Remark
	Device, Href string
}

// documents are those of some clauses, with the devices that fall under them.
func (c *Comparison) documents(hrefs []string, want func(*Compared) bool) (all []*comparedDocument) {
	for i := range c.Clauses {
		e := &c.Clauses[i]
		if !want(e) {
			continue
		}
		at := slices.IndexFunc(all, func(d *comparedDocument) bool { return d.Title == e.Document })
		if at < 0 {
			at = len(all)
			all = append(all, &comparedDocument{Title: e.Document})
		}
		d := all[at]
		if d.Names == nil {
			for k := range c.Columns {
				if e.Applies(k) {
					d.Columns, d.Names = append(d.Columns, k), append(d.Names, c.Columns[k].Name)
				}
			}
		}
		d.N++
		d.add(e, c, hrefs)
	}
	for _, d := range all {
		for _, s := range d.Sections {
			s.count(len(d.Columns))
		}
	}
	return all
}

func (d *comparedDocument) add(e *Compared, c *Comparison, hrefs []string) {
	if n := len(d.Sections); n == 0 || d.Sections[n-1].Title != e.Section {
		d.Sections = append(d.Sections, &comparedSection{Title: e.Section, Names: d.Names})
	}
	s := d.Sections[len(d.Sections)-1]
	line := &clauseLine{Compared: e}
	found := make(map[string]bool)
	for _, k := range d.Columns {
		st := e.States[k]
		line.Cells = append(line.Cells, st)
		found[string(st)], found[fmt.Sprintf("%s@%d", st, k)] = true, true
	}
	if e.Differs() {
		found["differs"] = true
	}
	keys := make([]string, 0, len(found))
	for k := range found {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	line.Sifted = strings.Join(keys, " ")
	for _, r := range e.Remarks {
		n := &noteLine{Remark: r, Device: c.Columns[r.Column].Name}
		if hrefs[r.Column] != "" && r.Verdict != conform.Unsupported {
			n.Href = hrefs[r.Column] + "#" + conform.CaseAnchor(c.Columns[r.Column].Device, r.Case)
		}
		line.Notes = append(line.Notes, n)
	}
	s.Clauses = append(s.Clauses, line)
}

// count sums a section up.
func (s *comparedSection) count(columns int) {
	for k := range columns {
		n := make(map[State]int)
		for _, e := range s.Clauses {
			n[e.Cells[k]]++
		}
		s.Shares = append(s.Shares, shares(n))
	}
}

// shares are the parts of a bar.
func shares(n map[State]int) (all []share) {
	for _, st := range append(slices.Clone(barOrder), Untestable) {
		if n[st] > 0 {
			all = append(all, share{st, n[st]})
		}
	}
	return all
}
