package certificate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/compare.gohtml
	compareText string
	//go:embed page/compare.css
	compareCSS string
	//go:embed page/compare.js
	compareJS string

	compareLayout = kit.NewLayout(compareCSS, compareJS, template.FuncMap{"short": func(s State) string { return shortNames[s] }}, compareText)
)

// comparedPage is the template's data for a comparison.
type comparedPage struct {
	kit.Page
	Devices   []*deviceRow
	States    []namedState        // states that occur
	Filter    []State             // states that the reader can select
	Differ    []*comparedDocument // with the clauses that some devices meet and others do not
	Documents []*comparedDocument // with all clauses
	Overview  []*documentRow
}

// documentRow has, for each device, a bar of a document's clauses by state, if it applies.
type documentRow struct {
	Title, Anchor string
	Shares        [][]kit.Share
}

// deviceRow is a row of the table of devices.
type deviceRow struct {
	Column
	About       []string
	OutcomeName string
	Href        string // link to its page
	Levels      []levelRow
}

// levelRow has the counts of the clauses of a level.
type levelRow struct {
	Level   string
	Shares  []kit.Share
	Summary string // counts by state
}

// namedState is a state with its name on a page.
type namedState struct {
	State State
	Name  string
}

// stateNames are the names of the states.
var stateNames = map[State]string{
	Pass: "met", Fail: "not met", Deviates: "not met, on record", Stale: "met, and on record as not", Broken: "could not be judged",
	Unsupported: "not supported", NotAsked: "not asked", Untestable: "untestable",
}

// shortNames are short names of the states.
var shortNames = map[State]string{
	Pass: "met", Fail: "not met", Deviates: "on record", Stale: "stale", Broken: "not judged", Unsupported: "not supported", NotAsked: "not asked",
	Untestable: "untestable",
}

// barOrder is the order of segments in a bar: the worst states first. It omits Untestable, which
// says nothing about a device.
var barOrder = []State{Broken, Fail, Stale, Deviates, Pass, Unsupported, NotAsked}

// WriteHTML writes the comparison as one self-contained page. Links to the pages of the
// devices are relative to dir; without dir there are none.
func (c *Comparison) WriteHTML(w io.Writer, dir string) error {
	p := &comparedPage{Page: kit.Page{Title: "fabrictest: devices compared", About: "devices compared, clause by clause"}}
	hrefs := c.pageLinks(dir)
	for i := range c.Columns {
		p.Devices = append(p.Devices, newDeviceRow(&c.Columns[i], hrefs[i]))
	}
	p.Documents = c.documents(hrefs, func(*Compared) bool { return true })
	p.Differ = c.documents(hrefs, (*Compared).Differs)
	p.addOverview(len(c.Columns))
	differ := 0
	for _, d := range p.Differ {
		differ += d.N
	}
	p.Headline = fmt.Sprintf("%s, and %s that some meet and others do not", cli.Plural(len(c.Columns), "device"), cli.Plural(differ, "clause"))
	p.addStates(c)
	return compareLayout.Write(w, p, "")
}

// addOverview adds a row for each document, with a bar of the states for each device, and gives
// each document the anchor that its row links to. columns is the number of devices.
func (p *comparedPage) addOverview(columns int) {
	for i, d := range p.Documents {
		d.Anchor = fmt.Sprintf("d%d", i+1)
		row := &documentRow{Title: d.Title, Anchor: d.Anchor, Shares: make([][]kit.Share, columns)}
		for cell, column := range d.Columns { // of the devices that the document applies to
			n := make(map[State]int)
			for _, s := range d.Sections {
				for _, clause := range s.Clauses {
					n[clause.Cells[cell]]++
				}
			}
			row.Shares[column] = shares(n)
		}
		p.Overview = append(p.Overview, row)
	}
}

// addStates adds the states that occur to the legend, and all but Untestable, which says nothing
// about a device, to the filter.
func (p *comparedPage) addStates(c *Comparison) {
	for _, s := range append(slices.Clone(barOrder), Untestable) {
		if !slices.ContainsFunc(c.Clauses, func(clause Compared) bool { return slices.Contains(clause.States, s) }) {
			continue
		}
		p.States = append(p.States, namedState{s, stateNames[s]})
		if s != Untestable {
			p.Filter = append(p.Filter, s)
		}
	}
}

// pageLinks returns relative URLs from dir to the devices' pages, by column. They are empty without
// dir.
func (c *Comparison) pageLinks(dir string) []string {
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

// tiers has the names of the tiers, on which cases are run.
var tiers = map[string]string{"sim": "emulated, in virtual time", "netns": "emulated, on sockets", "wire": "on its own wire"}

// newDeviceRow returns a row of the table of devices, from the device's column in the tables of
// clauses, with a bar for each level that has clauses. href is the link to its page.
func newDeviceRow(col *Column, href string) *deviceRow {
	d := &deviceRow{Column: *col, OutcomeName: outcomeNames[col.Outcome], Href: href}
	// Show only the release of the kernel.
	kernel, _, _ := strings.Cut(col.Kernel, " ")
	if kernel != "" {
		kernel = "Linux " + kernel
	}
	for _, s := range []string{col.Transport, kernel, tiers[col.Tier]} {
		if s != "" {
			d.About = append(d.About, s)
		}
	}
	for _, l := range conform.Levels {
		row := levelRow{Level: l}
		n := make(map[State]int)
		for _, s := range barOrder {
			n[s] = countOf(col.Counts, l, s)
		}
		var counts []string
		row.Shares, counts = kit.Bar(n, barOrder, stateNames)
		if row.Summary = strings.Join(counts, " · "); row.Summary != "" {
			d.Levels = append(d.Levels, row)
		}
	}
	return d
}

// comparedDocument is a document with the devices that it applies to.
type comparedDocument struct {
	Title    string
	Anchor   string
	Columns  []int // indexes of the devices
	Names    []string
	Sections []*comparedSection
	N        int // number of clauses
}

type comparedSection struct {
	Title   string
	Names   []string      // names of the devices
	Shares  [][]kit.Share // bar of each device
	Clauses []*clauseLine
}

// clauseLine is a clause with its state on the document's devices.
type clauseLine struct {
	*Compared
	Cells  []State
	Filter string // filter keys: states, with and without the device
	Notes  []*noteLine
}

// noteLine is a remark.
type noteLine struct {
	Remark
	Device, Href string
}

// documents groups the clauses for which include returns true by document and section, with the
// devices that each document applies to. hrefs has the links to the pages of the devices.
func (c *Comparison) documents(hrefs []string, include func(*Compared) bool) (all []*comparedDocument) {
	for i := range c.Clauses {
		clause := &c.Clauses[i]
		if !include(clause) {
			continue
		}
		at := slices.IndexFunc(all, func(d *comparedDocument) bool { return d.Title == clause.Document })
		if at < 0 {
			at = len(all)
			all = append(all, &comparedDocument{Title: clause.Document})
		}
		d := all[at]
		if d.Names == nil { // all clauses of a document have states on the same devices
			for column := range c.Columns {
				if clause.HasState(column) {
					d.Columns, d.Names = append(d.Columns, column), append(d.Names, c.Columns[column].Name)
				}
			}
		}
		d.N++
		d.addClause(clause, c, hrefs)
	}
	for _, d := range all {
		for _, s := range d.Sections {
			s.addShares(len(d.Columns))
		}
	}
	return all
}

// addClause adds a clause to its section, with its states, the keys by which the page filters it
// (such as "fail", or "fail@1" for one device), and its remarks, which link to the cases on the
// pages of the devices. Those pages have no entries for unsupported cases to link to.
func (d *comparedDocument) addClause(clause *Compared, c *Comparison, hrefs []string) {
	if n := len(d.Sections); n == 0 || d.Sections[n-1].Title != clause.Section {
		d.Sections = append(d.Sections, &comparedSection{Title: clause.Section, Names: d.Names})
	}
	s := d.Sections[len(d.Sections)-1]
	line := &clauseLine{Compared: clause}
	keys := make(map[string]bool)
	for _, column := range d.Columns {
		st := clause.States[column]
		line.Cells = append(line.Cells, st)
		keys[string(st)], keys[fmt.Sprintf("%s@%d", st, column)] = true, true
	}
	if clause.Differs() {
		keys["differs"] = true
	}
	line.Filter = strings.Join(slices.Sorted(maps.Keys(keys)), " ")
	for _, r := range clause.Remarks {
		n := &noteLine{Remark: r, Device: c.Columns[r.Column].Name}
		if hrefs[r.Column] != "" && r.Verdict != conform.Unsupported {
			n.Href = hrefs[r.Column] + "#" + conform.CaseAnchor(c.Columns[r.Column].Device, r.Case)
		}
		line.Notes = append(line.Notes, n)
	}
	s.Clauses = append(s.Clauses, line)
}

// addShares adds, for each of the document's devices, the share of the section's clauses in each
// state. The page draws them as a stacked bar.
func (s *comparedSection) addShares(devices int) {
	for device := range devices {
		n := make(map[State]int)
		for _, clause := range s.Clauses {
			n[clause.Cells[device]]++
		}
		s.Shares = append(s.Shares, shares(n))
	}
}

// shares returns the segments of a stacked bar, from the numbers of clauses by state.
func shares(n map[State]int) []kit.Share {
	all, _ := kit.Bar(n, append(slices.Clone(barOrder), Untestable), stateNames)
	return all
}
