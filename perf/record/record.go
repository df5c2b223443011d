// Package record holds recorded performance runs: what a device and its host were, and the
// samples of each measurement. It reads the output of perftest, OSU micro-benchmarks, Intel MPI
// Benchmarks and Go benchmarks, compares two runs ([Compare]), and finds the runs of a history
// after which a figure changed ([History]).
//
// It measures nothing, and opens files only in [ReadFile], [Load] and [LoadAll].
package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Version is the version of the file format.
const Version = 1

// Limits of a file.
const (
	maxFile    = 64 << 20
	maxSeries  = 10_000
	maxSamples = 1_000_000 // of all series
)

// Run is a recorded run, the contents of a file.
type Run struct {
	Version int       `json:"version"`
	Tool    string    `json:"tool,omitempty"`    // the program that measured, with its version
	Started time.Time `json:"started,omitzero"`  // when the run started
	Device  Device    `json:"device,omitzero"`   // the NIC
	Machine string    `json:"machine,omitempty"` // the host: its name, processor and operating system
	// Options are settings of the run that do not differ between its series.
	Options map[string]string `json:"options,omitempty"`
	Series  []Series          `json:"series"`
}

// Device is a NIC.
type Device struct {
	Name     string `json:"name,omitempty"` // mlx5_0
	Driver   string `json:"driver,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Link     string `json:"link,omitempty"` // InfiniBand or Ethernet, with the rate
}

// Series are the samples of one measurement. Its name is that of a Go benchmark without the prefix:
// the measurement, and then its parameters, as in write_bw/bytes=65536/qps=2.
type Series struct {
	Name    string    `json:"name"`
	Unit    Unit      `json:"unit"`
	Samples []float64 `json:"samples"`
}

// Unit is the unit of samples. Times and sizes are better if less, rates if more.
type Unit string

// The units.
const (
	Seconds  Unit = "s"
	Bytes    Unit = "B/s"
	Messages Unit = "1/s"
	Size     Unit = "B" // of memory
)

// MoreIsBetter reports whether a larger value is better.
func (u Unit) MoreIsBetter() bool { return strings.HasSuffix(string(u), "/s") }

// Median returns the median of the samples.
func (s *Series) Median() float64 { return median(s.Samples) }

// Noise returns the A/A noise: the relative difference between the medians of every other sample and
// the rest; 0 for too few samples.
func (s *Series) Noise() float64 { return noise(s.Samples) }

// find returns the series with a name and unit; nil if there is none.
func (r *Run) find(name string, unit Unit) *Series {
	i := slices.IndexFunc(r.Series, func(s Series) bool { return s.Name == name && s.Unit == unit })
	if i < 0 {
		return nil
	}
	return &r.Series[i]
}

// Add adds a sample to a series, and creates the series if needed.
func (r *Run) Add(name string, unit Unit, sample float64) {
	s := r.find(name, unit)
	if s == nil {
		r.Series = append(r.Series, Series{Name: name, Unit: unit})
		s = &r.Series[len(r.Series)-1]
	}
	s.Samples = append(s.Samples, sample)
}

// Merge adds the samples of other runs of the same device to r. The description stays that of r.
func (r *Run) Merge(others ...*Run) {
	for _, o := range others {
		for i := range o.Series {
			for _, v := range o.Series[i].Samples {
				r.Add(o.Series[i].Name, o.Series[i].Unit, v)
			}
		}
	}
}

// Read reads a run in one of the formats: a file of Write, or the output of perftest, OSU
// micro-benchmarks, Intel MPI Benchmarks or go test -bench. name is for errors.
func Read(name string, r io.Reader) (*Run, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d MiB", name, maxFile>>20)
	}
	run, err := parse(name, string(text))
	if err == nil {
		err = run.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return run, nil
}

// parse parses a file in any format, which it recognizes by a text at the start of a line (mark).
func parse(name, text string) (*Run, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return parseJSON(text)
	}
	for _, f := range []struct {
		mark  string
		parse func(name, text string) (*Run, error)
	}{
		{"#bytes #iterations", parsePerftest},
		{"#bytes     #iterations", parsePerftest},
		{"# OSU ", parseOSU},
		{"# Benchmarking ", parseIMB},
		{"\nBenchmark", parseGo},
	} {
		if strings.Contains("\n"+text, f.mark) {
			return f.parse(name, text)
		}
	}
	return nil, errors.New("this is no recorded run, and no output of perftest, OSU, IMB or Go benchmarks")
}

// parseJSON parses a file of Write, or the JSON of perftest.
func parseJSON(text string) (*Run, error) {
	if strings.Contains(text, `"test_info"`) {
		return parsePerftestJSON(text)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	r := new(Run)
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	if r.Version != Version {
		return nil, fmt.Errorf("version %d: this program reads version %d", r.Version, Version)
	}
	return r, nil
}

// check returns an error if the run has no samples or too many, a sample is not a time or rate, or
// the name or unit of a series is invalid.
func (r *Run) check() error {
	n := 0
	for i := range r.Series {
		s := &r.Series[i]
		n += len(s.Samples)
		if s.Name == "" || strings.ContainsFunc(s.Name, func(c rune) bool { return c <= ' ' }) {
			return fmt.Errorf("series %d: the name %q is empty or has a space", i, s.Name)
		}
		if !slices.Contains([]Unit{Seconds, Bytes, Messages, Size}, s.Unit) {
			return fmt.Errorf("series %s: unit %q: give s, B/s, 1/s or B", s.Name, s.Unit)
		}
		for _, v := range s.Samples {
			if !(v >= 0) || math.IsInf(v, 0) {
				return fmt.Errorf("series %s: the sample %v is no time, rate or size", s.Name, v)
			}
		}
	}
	switch {
	case n == 0:
		return errors.New("there is no sample in it")
	case len(r.Series) > maxSeries || n > maxSamples:
		return fmt.Errorf("%d series with %d samples: at most %d and %d", len(r.Series), n, maxSeries, maxSamples)
	}
	return nil
}

// ReadFile reads a run from a file in any format.
func ReadFile(name string) (*Run, error) {
	text, err := cli.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	return Read(name, strings.NewReader(string(text)))
}

// Load reads a run: a file, or a folder whose files are repetitions of one run.
func Load(name string) (*Run, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, &cli.Error{Err: err}
	}
	files := []string{name}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(name, "*")); err != nil || len(files) == 0 {
			return nil, cli.Errorf("%s has no files", name)
		}
	}
	runs, err := LoadAll(files)
	if err != nil {
		return nil, err
	}
	runs[0].Merge(runs[1:]...)
	return runs[0], nil
}

// LoadAll reads a run from each file.
func LoadAll(files []string) (runs []*Run, err error) {
	for _, f := range files {
		r, err := ReadFile(f)
		if err != nil {
			return nil, &cli.Error{Err: err}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// Write writes the run as JSON, with series in the order of their names.
func (r *Run) Write(w io.Writer) error {
	sorted := *r
	sorted.Version = Version
	sorted.Series = slices.Clone(r.Series)
	slices.SortFunc(sorted.Series, func(a, b Series) int {
		return cmp.Or(compareNames(a.Name, b.Name), cmp.Compare(a.Unit, b.Unit))
	})
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(&sorted)
}
