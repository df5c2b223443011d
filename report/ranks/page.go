package ranks

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"io"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// The page is one file with inline style, script and drawings.
var (
	//go:embed page/page.gohtml
	pageText string
	//go:embed page/page.css
	pageCSS string

	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

// htmlPage is the template's data.
type htmlPage struct {
	kit.Style
	Title, Headline, About string
	Facts                  []fact
	Job                    *jobView
	Memory                 *memoryView
	Results                string
}

// fact is a name and a value.
type fact struct {
	Name, Value string
	Code        bool // shown as code
}

// WriteHTML writes a run as one self-contained page.
func WriteHTML(w io.Writer, r *Run) error {
	p := &htmlPage{Style: kit.NewStyle(pageCSS, ""), Facts: facts(r), Results: ResultFile, Headline: "Nothing was run"}
	if r.Job != nil {
		p.Job = newJobView(r.Job)
		p.Headline, p.About = p.Job.Headline, "ranks, and what they did"
	}
	if len(r.Memory) > 0 {
		p.Memory = newMemoryView(r)
		p.Headline, p.About = p.Memory.Headline, "communication memory of ranks"
	}
	p.Title = "fabrictest: " + p.Headline
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("%s: %w", PageFile, err)
	}
	// The template escapes HTML. Control and invisible characters are made visible at the
	// end, wherever they came from.
	_, err := io.WriteString(w, printable.Text(b.String()))
	return err
}

func facts(r *Run) []fact {
	all := []fact{
		{Name: "Started", Value: r.Started.UTC().Format("2 Jan 2006, 15:04:05 UTC")},
		{Name: "Took", Value: units.Duration(r.Wall.Round(time.Millisecond))},
		{Name: "Machine", Value: fmt.Sprintf("%s/%s, %s", r.Machine.OS, r.Machine.Arch, units.Plural(r.Machine.CPUs, "processor"))},
		{Name: "fabrictest", Value: r.Tool},
		{Name: "Seed", Value: fmt.Sprint(r.Seed)},
	}
	if j := r.Job; j != nil {
		for _, f := range []fact{
			{Name: "Tier", Value: j.Tier},
			{Name: "NICs", Value: j.Provider},
			{Name: "Design", Value: j.Design},
			{Name: "Large messages", Value: j.Protocol},
			{Name: "Progress", Value: j.Progress},
		} {
			if f.Value != "" {
				all = append(all, f)
			}
		}
		if j.LossPPM > 0 {
			all = append(all, fact{Name: "Loss", Value: fmt.Sprintf("%g %%", float64(j.LossPPM)/1e4)})
		}
	}
	return append(all, fact{"Again", r.Command, true})
}

func esc(s string) string { return html.EscapeString(printable.Text(s)) }
