package nics

import (
	_ "embed"
	"fmt"
	"io"
	"text/tabwriter"
)

//go:embed platforms/schema.json
var platformSchema []byte

// PlatformSchema returns the JSON schema of platform files (platforms/*.yaml).
func PlatformSchema() []byte { return platformSchema }

// PlatformSummary is a line of the list of platforms. It counts parameters by Parameter.Kind.
type PlatformSummary struct {
	Name      string `json:"name"`
	Title     string `json:"title"`
	Provider  string `json:"provider"`
	Published int    `json:"published"`
	Fitted    int    `json:"fitted"`
	Assumed   int    `json:"assumed"`
}

// ListPlatforms summarizes the platforms that ship with fabrictest: it counts the parameters whose
// values are published, fitted to published figures, or assumed.
func ListPlatforms() (all []PlatformSummary, err error) {
	for _, name := range PlatformNames() {
		p, err := LoadPlatform(name)
		if err != nil {
			return nil, err
		}
		s := PlatformSummary{Name: p.Name, Title: p.Title, Provider: p.Provider}
		for i := range p.Parameters {
			switch p.Parameters[i].Kind() {
			case "fitted":
				s.Fitted++
			case "assumed":
				s.Assumed++
			default:
				s.Published++
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// WritePlatforms writes a table of platforms.
func WritePlatforms(w io.Writer, all []PlatformSummary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPUBLISHED\tFITTED\tASSUMED\tTITLE")
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", s.Name, s.Published, s.Fitted, s.Assumed, s.Title)
	}
	return t.Flush()
}

// PlatformRows are the rows of the file of a platform.
type PlatformRows struct {
	Name       string       `json:"name"`
	Title      string       `json:"title"`
	Notes      string       `json:"notes"`
	Provider   string       `json:"provider"`
	Parameters []Parameter  `json:"parameters"`
	Base       []BaseFigure `json:"base"`
}

// Rows returns the rows of the platform's file.
func (p *Platform) Rows() PlatformRows {
	return PlatformRows{Name: p.Name, Title: p.Title, Notes: p.Notes, Provider: p.Provider, Parameters: p.Parameters, Base: p.Base}
}

// Write writes the platform's parameters and base figures (published latencies, bandwidths and
// rates) as tables, with their values and sources.
func (r *PlatformRows) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\nNICs of %s. %s\n\n", r.Name, r.Title, r.Provider, r.Notes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PARAMETER\tVALUE\tSOURCE")
	for _, p := range r.Parameters {
		fmt.Fprintf(t, "%s\t%g\t%s\n", p.Name, p.Value, p.Source)
	}
	fmt.Fprintln(t, "\nBASE FIGURE\tVALUE\tSOURCE")
	for _, b := range r.Base {
		value, source := "", b.Source
		if b.Value != 0 {
			value = fmt.Sprintf("%g %s", b.Value, b.Unit)
		}
		switch {
		case b.Fitted:
			source += "; fitted"
		case b.Measure != nil:
			source += "; compared"
		}
		if b.Why != "" {
			source += ": " + b.Why
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", b.Figure, value, source)
	}
	return t.Flush()
}
