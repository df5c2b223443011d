package certificate

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report/internal/look"
	"github.com/fabrictest/fabrictest/report/internal/visible"
)

var (
	//go:embed page/compare.gohtml
	compareText string
	//go:embed page/compare.css
	compareCSS string

	compareTemplate = template.Must(template.New("compare").Parse(compareText))
)

// comparedPage is what the template sees of a comparison.
type comparedPage struct {
	look.Style
	*Comparison
	Headline  string
	Sums      []sumView
	Documents []*comparedDocument
}

// sumView is how many clauses of a level met the same fate on each device.
type sumView struct {
	Title string
	N     []int
}

type comparedDocument struct {
	Title   string
	Clauses []*Compared
}

// WriteHTML writes the comparison as one page that needs nothing else.
func (c *Comparison) WriteHTML(w io.Writer) error {
	p := &comparedPage{Style: look.With(compareCSS, ""), Comparison: c}
	differ := 0
	for i := range c.Clauses {
		e := &c.Clauses[i]
		if e.Differs() {
			differ++
		}
		if n := len(p.Documents); n == 0 || p.Documents[n-1].Title != e.Document {
			p.Documents = append(p.Documents, &comparedDocument{Title: e.Document})
		}
		d := p.Documents[len(p.Documents)-1]
		d.Clauses = append(d.Clauses, e)
	}
	p.Headline = fmt.Sprintf("%s, and %s in which they differ", units.Plural(len(c.Columns), "device"), units.Plural(differ, "clause"))
	for _, level := range levels {
		for _, s := range states {
			if s == Untestable || !c.counts(level, s) {
				continue
			}
			line := sumView{Title: level + ": " + string(s)}
			for i := range c.Columns {
				line.N = append(line.N, c.Columns[i].count(level, s))
			}
			p.Sums = append(p.Sums, line)
		}
	}
	var b bytes.Buffer
	if err := compareTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	_, err := io.WriteString(w, visible.Text(b.String()))
	return err
}
