package conform

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema (draft 2020-12) of conformance.json.
func Schema() []byte { return slices.Clone(schema) }

// Write writes a run as JSON. A version of 0 is written as Version.
func Write(w io.Writer, r *Run) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(Filled(r))
}

// Filled returns a run as it is written: Version set, and empty lists instead of nil. It
// shares unchanged data with r.
func Filled(r *Run) *Run {
	out := *r
	if out.Version == 0 {
		out.Version = Version
	}
	out.Devices = append([]Device{}, r.Devices...)
	for i := range out.Devices {
		d := &out.Devices[i]
		d.Results = append([]Result{}, d.Results...)
		for j := range d.Results {
			d.Results[j].Rows = append([]string{}, d.Results[j].Rows...)
			if l := d.Results[j].Ladder; l != nil && l.Steps == nil {
				d.Results[j].Ladder = &Ladder{[]Step{}, l.Beyond}
			}
		}
		d.Measured = slices.Clone(d.Measured)
		for j := range d.Measured {
			d.Measured[j].Samples = append([]float64{}, d.Measured[j].Samples...)
		}
	}
	out.Documents = append([]Document{}, r.Documents...)
	for i := range out.Documents {
		d := &out.Documents[i]
		d.Sections = append([]Section{}, d.Sections...)
		for j := range d.Sections {
			d.Sections[j].Rows = append([]Row{}, d.Sections[j].Rows...)
		}
	}
	return &out
}

// Read reads a run that Write wrote. An unknown version, and an unknown, missing or
// duplicate key are errors; a *report.KeyError names the key.
func Read(r io.Reader) (*Run, error) {
	text, err := io.ReadAll(io.LimitReader(r, report.MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > report.MaxSize {
		return nil, fmt.Errorf("longer than %d bytes", report.MaxSize)
	}
	if err := kit.Version(text, Version, "the result of fabrictest conform"); err != nil {
		return nil, err
	}
	var run Run
	if err := kit.Decode(text, &run); err != nil {
		return nil, err
	}
	if err := run.Check(); err != nil {
		return nil, err
	}
	return &run, nil
}

// Check returns a *report.KeyError for an unknown verdict.
func (r *Run) Check() error {
	for i := range r.Devices {
		for j := range r.Devices[i].Results {
			if err := r.Devices[i].Results[j].check(); err != nil {
				err.Key = fmt.Sprintf("devices[%d].results[%d].%s", i, j, err.Key)
				return err
			}
		}
	}
	return nil
}

// check returns an error for an unknown verdict.
func (r *Result) check() *report.KeyError {
	wrong := func(key string, v Verdict) *report.KeyError {
		return &report.KeyError{Key: key, Err: fmt.Errorf("%q is none of %q", v, Verdicts())}
	}
	if !slices.Contains(Verdicts(), r.Verdict) {
		return wrong("verdict", r.Verdict)
	}
	for i, f := range r.Defective {
		if !slices.Contains(Verdicts(), f.Verdict) {
			return wrong(fmt.Sprintf("defective[%d].verdict", i), f.Verdict)
		}
	}
	return nil
}

// ReadFile reads the conformance.json of a run.
func ReadFile(path string) (*Run, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	run, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}
