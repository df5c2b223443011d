package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema (draft 2020-12) of result.json.
func Schema() []byte { return slices.Clone(schema) }

// MaxSize is the largest result that Read accepts, in bytes.
const MaxSize = 1 << 30

// ErrVersion is wrapped by the error of Read for an unknown version.
var ErrVersion = kit.ErrVersion

// KeyError is the error for a key of a file.
type KeyError = kit.KeyError

// Write writes a run as JSON. A version of 0 is written as Version.
func Write(w io.Writer, r *Run) error {
	out := *r
	if out.Version == 0 {
		out.Version = Version
	}
	out.Scenarios = make([]Result, len(r.Scenarios))
	for i := range r.Scenarios {
		out.Scenarios[i] = r.Scenarios[i]
		out.Scenarios[i].Fabric = withLists(r.Scenarios[i].Fabric)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(&out)
}

// withLists returns a copy of a fabric with empty lists instead of nil, which JSON would
// write as null.
func withLists(t *topology.Topology) *topology.Topology {
	if t == nil {
		return nil
	}
	c := *t
	c.Cables = append([]topology.Cable{}, t.Cables...)
	c.Hosts = append([]topology.Host{}, t.Hosts...)
	for i := range c.Hosts {
		c.Hosts[i].NICs = append([]topology.NIC{}, t.Hosts[i].NICs...)
		for j := range c.Hosts[i].NICs {
			if nic := &c.Hosts[i].NICs[j]; nic.Addrs == nil {
				nic.Addrs = []netip.Prefix{}
			}
		}
	}
	return &c
}

// Read reads a result that Write wrote. An unknown version, and an unknown, missing or
// duplicate key are errors; a *KeyError names the key.
func Read(r io.Reader) (*Run, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("longer than %d bytes", MaxSize)
	}
	if err := kit.Version(text, Version, "the result of a run"); err != nil {
		return nil, err
	}
	var run Run
	if err := kit.Decode(text, &run); err != nil {
		return nil, err
	}
	for i := range run.Scenarios {
		if v := run.Scenarios[i].Verdict; !slices.Contains(Verdicts(), v) {
			return nil, &KeyError{Key: fmt.Sprintf("scenarios[%d].verdict", i), Err: fmt.Errorf("%q is none of %q", v, Verdicts())}
		}
	}
	return &run, nil
}

// ReadFile reads the result.json of a run.
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
