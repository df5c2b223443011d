package experiment

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

// GateDiff is the difference between two records.
type GateDiff struct {
	Cases   int          `json:"cases"`
	Changes []GateChange `json:"changes"`
	// Missing are the cases of the record that are no more, and New those that it lacks.
	Missing []string `json:"missing,omitempty"`
	New     []string `json:"new,omitempty"`
}

// GateChange is a result that differs. A step of a path that occurs several times counts by the sum.
type GateChange struct {
	Case   string `json:"case"`
	Key    string `json:"key"`
	Before Value  `json:"before"`
	After  Value  `json:"after"`
}

//go:embed gate.txt
var gateText string

// Gate simulates all cases and compares their results (times, numbers of events) with the record,
// gate.txt. With update it replaces gate.txt in the sources that the working directory is in.
func Gate(update bool) (*GateDiff, error) {
	before, err := ParseGateRecord(gateText)
	if err != nil {
		return nil, fmt.Errorf("gate.txt: %w", err)
	}
	after, err := MeasureGate(GateCases())
	if err != nil || !update {
		return before.Compare(after), err
	}
	root, err := mutant.Root()
	if err != nil {
		return nil, err
	}
	return before.Compare(after), cli.WriteFile(filepath.Join(root, "lab/experiment/gate.txt"), after.Write)
}

// Compare returns the changes from r to after, in the order of cases and lines.
func (r GateRecord) Compare(after GateRecord) *GateDiff {
	d := &GateDiff{Cases: len(after), Changes: []GateChange{}}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		now, ok := after[name]
		if !ok {
			d.Missing = append(d.Missing, name)
			continue
		}
		d.Changes = append(d.Changes, compareLines(name, r[name], now)...)
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := r[name]; !ok {
			d.New = append(d.New, name)
		}
	}
	return d
}

// compareLines returns the changes of a case. If only the order of steps differs, it returns one
// change, of the first line that differs.
func compareLines(name string, before, after []Line) (changes []GateChange) {
	if slices.Equal(before, after) {
		return nil
	}
	a, keys := sumLines(before)
	b, others := sumLines(after)
	for _, key := range others {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if a[key] != b[key] {
			changes = append(changes, GateChange{name, key, a[key], b[key]})
		}
	}
	for i := 0; changes == nil; i++ {
		if before[i] != after[i] {
			changes = append(changes, GateChange{name, "order of " + before[i].Key, before[i].Value, after[i].Value})
		}
	}
	return changes
}

// Same reports whether the records are equal.
func (d *GateDiff) Same() bool { return len(d.Changes) == 0 && len(d.Missing) == 0 && len(d.New) == 0 }

// gateEffect is a change of the same kind in one or more cases.
type gateEffect struct {
	key   string
	cases int
	most  GateChange // by the relative change
}

// effects groups the changes by kind (GateChange.kind), the most frequent first. Each effect has
// the change that is the largest in proportion.
func (d *GateDiff) effects() (all []gateEffect) {
	index := map[string]int{}
	for _, c := range d.Changes {
		key := c.kind()
		i, known := index[key]
		if !known {
			i = len(all)
			index[key] = i
			all = append(all, gateEffect{key: key, most: c})
		}
		e := &all[i]
		e.cases++
		if c.relative() > e.most.relative() {
			e.most = c
		}
	}
	slices.SortStableFunc(all, func(a, b gateEffect) int { return cmp.Compare(b.cases, a.cases) })
	return all
}

// kind returns the direction and the key of a change, such as "more time: post" or "new: post". It
// leaves out of the key the part of the measurement, such as "warm-up", and the hosts, so that
// changes of several cases with the same cause are of the same kind.
func (c *GateChange) kind() string {
	key := c.Key
	for _, part := range partNames[:ended] {
		key = strings.TrimPrefix(key, part+": ")
	}
	key = strings.Replace(key, "path: host 0, ", "path: ", 1)
	key = strings.Replace(key, "path: host 1, ", "path: ", 1)
	key, _, _ = strings.Cut(key, " from host")
	before, after := c.Before.N, c.After.N
	if before == after {
		before, after = c.Before.Bytes, c.After.Bytes
	}
	unit := map[bool]string{true: "time", false: "number"}[c.Before.Unit == "ns" || c.After.Unit == "ns"]
	switch {
	case before == 0:
		return "new: " + key
	case after == 0:
		return "gone: " + key
	case c.Before.N == c.After.N:
		unit = "bytes"
	}
	return map[bool]string{true: "more ", false: "less "}[after > before] + unit + ": " + key
}

// relative returns how large a change is: the larger of both values divided by the smaller. The
// values are the numbers of events, or the bytes if these numbers are equal.
func (c *GateChange) relative() float64 {
	before, after := float64(c.Before.N), float64(c.After.N)
	if before == after {
		before, after = float64(c.Before.Bytes), float64(c.After.Bytes)
	}
	return max(before, after) / max(1, min(before, after))
}

// String returns the change: "8 -> 16", with the percentage if there is one.
func (c *GateChange) String() string {
	text := fmt.Sprintf("%s -> %s", c.Before, c.After)
	if c.Before.N != 0 && c.Before.N != c.After.N {
		text += fmt.Sprintf(" (%+.1f %%)", 100*(float64(c.After.N)/float64(c.Before.N)-1))
	}
	return text
}

// maxGateCases is the number of cases whose changes a text has in full.
const maxGateCases = 3

// WriteText writes the differences: first each kind of change with the number of results and the
// largest of them, and then all changes of the first cases.
func (d *GateDiff) WriteText(w io.Writer) error {
	var b strings.Builder
	if d.Same() {
		fmt.Fprintf(&b, "%d cases are as recorded.\n", d.Cases)
	}
	for _, e := range d.effects() {
		fmt.Fprintf(&b, "%-45s %3d results; most in %s, %s: %s\n", e.key, e.cases, e.most.Case, e.most.Key, e.most.String())
	}
	for _, name := range d.Missing {
		fmt.Fprintf(&b, "%s: there is no such case any more\n", name)
	}
	for _, name := range d.New {
		fmt.Fprintf(&b, "%s: a new case\n", name)
	}
	shown, last := 0, ""
	for _, c := range d.Changes {
		if c.Case != last {
			if shown++; shown > maxGateCases {
				break
			}
			last = c.Case
			fmt.Fprintf(&b, "\n%s\n", last)
		}
		fmt.Fprintf(&b, "  %-50s %s\n", c.Key, c.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
