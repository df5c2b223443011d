package certificate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/cover.gohtml
	coverText string
	//go:embed page/cover.css
	coverCSS string

	coverTemplate = template.Must(template.New("cover").Parse(coverText))
)

// cover is the template's data for a certificate.
type cover struct {
	*Certificate
	OutcomeName    string
	Tables         []table
	States         []namedState
	Counts         []levelView
	Blind          []string
	File, Manifest string
}

type table struct {
	Title string
	Facts []fact
}

type fact struct {
	Name   string
	Values []string
}

// levelView is a row of the table of clauses.
type levelView struct {
	Level string
	N     []kit.Share // in the order of the states
}

// outcomeNames are the names of outcomes on pages.
var outcomeNames = map[Outcome]string{
	Conforms: "Conforms", WithDeviations: "Conforms, with deviations", DoesNotConform: "Does not conform", Incomplete: "Not complete",
}

// newCover returns the data of a certificate's first page: the outcome, tables of the device and
// the judge (the test system), what the judge cannot observe (Blind), and the numbers of testable
// clauses by level and state.
func newCover(c *Certificate) *cover {
	v := &cover{Certificate: c, OutcomeName: outcomeNames[c.Outcome], Blind: c.Judge.Blind, File: File, Manifest: ManifestFile}
	s, j := &c.Subject, &c.Judge
	v.addTable("The device",
		newFact("Device", s.Device), newFact("Kind", s.Kind), newFact("Transport", s.Transport), newFact("Driver", s.Driver), newFact("Firmware", s.Firmware),
		newFact("Vendor, part", fmt.Sprintf("%#06x, %d", s.VendorID, s.PartID)), newFact("GUID", s.GUID), newFact("Addresses", s.Addresses...),
		newFact("Host", s.Host), newFact("Kernel", s.Kernel), newFact("Driven by", s.Library), newFact("Claims", strings.Join(s.Claims, ", ")))
	v.addTable("The judge",
		newFact("fabrictest", c.Run.Tool), newFact("Wire", j.Wire), newFact("Addresses", j.Addresses...), newFact("Agent", j.Agent),
		newFact("Seed", fmt.Sprint(c.Run.Seed)), newFact("Started", kit.Stamp(j.Started)), newFact("Ended", kit.Stamp(j.Ended)))
	for _, st := range states {
		if st != Untestable {
			v.States = append(v.States, namedState{st, shortNames[st]})
		}
	}
	for _, l := range conform.Levels {
		line := levelView{Level: l}
		for _, st := range v.States {
			line.N = append(line.N, kit.Share{State: string(st.State), N: countOf(c.Counts, l, st.State)})
		}
		v.Counts = append(v.Counts, line)
	}
	return v
}

// addTable adds a table with the facts that have a value.
func (c *cover) addTable(title string, facts ...fact) {
	t := table{Title: title}
	for _, f := range facts {
		if len(f.Values) > 0 && f.Values[0] != "" {
			t.Facts = append(t.Facts, f)
		}
	}
	c.Tables = append(c.Tables, t)
}

// newFact returns a line of a table on the cover: a name and one or more values.
func newFact(name string, values ...string) fact { return fact{name, values} }

// writePage writes the page of the results with the certificate as its cover.
func (c *Certificate) writePage(w io.Writer) error {
	var coverHTML strings.Builder
	if err := coverTemplate.Execute(&coverHTML, newCover(c)); err != nil {
		return fmt.Errorf("%s: %w", PageFile, err)
	}
	// The template has escaped the text.
	return conform.WriteHTMLWithCover(w, &c.Run, conform.Cover{HTML: template.HTML(coverHTML.String()), CSS: coverCSS, Results: File})
}
