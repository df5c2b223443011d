package ranks

import (
	_ "embed"
	"fmt"
	"io"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/page.gohtml
	pageText string
	//go:embed page/page.css
	pageCSS string

	layout = kit.NewLayout(pageCSS, "", nil, pageText)
)

// htmlPage is the template's data.
type htmlPage struct {
	kit.Page
	Job    *jobView
	Memory *memoryView
}

// WriteHTML writes a run as one self-contained page: the statistics of its job, and its memory
// measurements, whichever it has.
func WriteHTML(w io.Writer, r *Run) error {
	p := &htmlPage{Page: kit.Page{Facts: facts(r), Results: ResultFile, Headline: "Nothing was run"}}
	if r.Job != nil {
		p.Job = newJobView(r.Job)
		p.Headline, p.About = p.Job.Headline, "statistics of an MPI job"
	}
	if len(r.Memory) > 0 {
		p.Memory = newMemoryView(r)
		p.Headline, p.About = p.Memory.Headline, "communication memory of ranks"
	}
	p.Title = "fabrictest: " + p.Headline
	return layout.Write(w, p, "")
}

// facts returns the names and values at the head of the page: machine, version, settings of the
// job, and the command that repeats the run. The tier is where the job ran: "sim" is a simulation.
func facts(r *Run) (all kit.Facts) {
	all.Add("Started", kit.Stamp(r.Started))
	all.Add("Took", cli.Duration(r.Wall.Round(time.Millisecond)))
	all.Add("Machine", r.Machine.String())
	all.Add("fabrictest", r.Tool)
	all.Add("Seed", fmt.Sprint(r.Seed))
	if j := r.Job; j != nil {
		all.Add("Tier", j.Tier)
		all.Add("NICs", j.Provider)
		all.Add("Design", j.Design)
		all.Add("Large messages", j.Protocol)
		all.Add("Progress", j.Progress)
		if j.LossPPM > 0 {
			all.Add("Loss", fmt.Sprintf("%g %%", float64(j.LossPPM)/1e4))
		}
	}
	all.AddCommand("Again", r.Command)
	return all
}

// Files of a result folder.
const (
	ResultFile = "ranks.json"
	PageFile   = kit.PageFile
)

// Write writes a run as JSON.
func Write(w io.Writer, r *Run) error { return kit.WriteJSON(w, r) }

// WriteFolder writes ranks.json and report.html into a folder, which it creates if needed.
// Each file is replaced atomically. The error is a *report.FolderError; paths has the files
// that were written.
func WriteFolder(dir string, r *Run) (paths report.Paths, err error) {
	return kit.Folder[*Run]{Result: ResultFile, Page: WriteHTML}.Write(dir, r)
}
