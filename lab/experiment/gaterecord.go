package experiment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// GateRecord has the results of cases by name.
type GateRecord map[string][]Line

// Line is a result: a time, a number of events, or a step of the critical path. Steps keep their
// order, and may occur more than once.
type Line struct {
	Key   string
	Value Value
}

// Value is a number with a unit, or of events with the bytes of all of them.
type Value struct {
	N     int    `json:"n"`
	Unit  string `json:"unit,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
}

// String returns the value as text: "120 ns", "8", or "8, 4096 B".
func (v Value) String() string {
	text := strconv.Itoa(v.N)
	if v.Unit != "" {
		text += " " + v.Unit
	}
	if v.Bytes != 0 {
		text += fmt.Sprintf(", %d B", v.Bytes)
	}
	return text
}

// parseValue parses the text that Value.String returns.
func parseValue(text string) (v Value, err error) {
	number, bytes, hasBytes := strings.Cut(text, ", ")
	number, v.Unit, _ = strings.Cut(number, " ")
	v.N, err = strconv.Atoi(number)
	if hasBytes && err == nil {
		v.Bytes, err = strconv.Atoi(strings.TrimSuffix(bytes, " B"))
	}
	return v, err
}

// MeasureGate measures the cases and returns their lines. A case that failed has no lines, and its
// error is one of those returned.
func MeasureGate(cases []GateCase) (GateRecord, error) {
	r := GateRecord{}
	errs := make([]error, 0, len(cases))
	for i := range cases {
		lines, err := cases[i].Measure()
		errs = append(errs, err)
		r[cases[i].Name()] = lines
	}
	return r, errors.Join(errs...)
}

// Write writes the record as text: the name of each case, and its lines below it. Cases are sorted
// by name.
func (r GateRecord) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "# Written by 'fabrictest perf gate --update'. Times are virtual.")
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(b, "\n%s\n", name)
		for _, l := range r[name] {
			fmt.Fprintf(b, "  %s = %s\n", l.Key, l.Value)
		}
	}
	return b.Flush()
}

// ParseGateRecord parses the text of a record.
func ParseGateRecord(text string) (GateRecord, error) {
	r := GateRecord{}
	name := ""
	for i, line := range strings.Split(text, "\n") {
		rest, isLine := strings.CutPrefix(line, "  ")
		switch {
		case line == "" || line[0] == '#':
		case !isLine:
			name = line
			r[name] = nil
		default:
			key, value, ok := strings.Cut(rest, " = ")
			v, err := parseValue(value)
			if !ok || err != nil || name == "" {
				return nil, fmt.Errorf("line %d: %q is no result", i+1, line)
			}
			r[name] = append(r[name], Line{key, v})
		}
	}
	return r, nil
}

// sumLines returns the sums of the lines with the same key, by key, and the keys in the order of
// lines.
func sumLines(lines []Line) (sums map[string]Value, keys []string) {
	sums = map[string]Value{}
	for _, l := range lines {
		v, seen := sums[l.Key]
		if !seen {
			keys = append(keys, l.Key)
		}
		sums[l.Key] = Value{N: v.N + l.Value.N, Unit: l.Value.Unit, Bytes: v.Bytes + l.Value.Bytes}
	}
	return sums, keys
}
