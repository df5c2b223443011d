package scenarios

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// field is a key of a section and the struct field of its value.
type field struct {
	name     string
	index    []int
	typ      reflect.Type
	tag      reflect.StructTag
	required bool
	owner    reflect.Type // the struct that declares the field, which differs for inlined fields
	goName   string
}

type fields []field

// workloadTags are the tags of the fields of workload.Config for the loader and the schema.
var workloadTags = map[string]reflect.StructTag{
	"Kind": `enum:"stream pingpong random incast all-to-all halo calls collective" doc:"stream (rank 2i to rank 2i+1, one way), pingpong (rank 2i and rank 2i+1, ` +
		`a message at a time), random (rank 2i and rank 2i+1: every verb, checked against a model), incast (every rank to rank 0), all-to-all (every rank ` +
		`to every other), halo (neighbours on a ring write into each other's borders, round by round), calls (connections made through the connection ` +
		`manager, used and closed), collective (collective operations of the multi-rank runtime, among all ranks)."`,
	"Ranks":       `range:"2..1024" doc:"ranks is how many hosts have one, beginning with host0; all if left out."`,
	"Services":    `enum:"rc srq xrc uc ud rd"`,
	"Op":          `enum:"send write read"`,
	"Messages":    `range:"1..16777216"`,
	"Bytes":       `unit:"bytes" range:"1..67108864"`,
	"Depth":       `range:"1..4096"`,
	"MTU":         `unit:"bytes" range:"256..4096"`,
	"Timeout":     `doc:"timeout is the time before a packet is sent again, rounded up to 4.096 us times a power of two."`,
	"Operation":   `enum:"barrier bcast scatter gather allgather alltoall reduce allreduce reduce-scatter scan exscan" doc:"operation is the operation of collective; all if left out."`,
	"Collectives": `pattern:"^[a-z-]{1,40}=[a-z0-9-]{1,40}(,[a-z-]{1,40}=[a-z0-9-]{1,40}){0,20}$" hint:"give a list such as bcast=chain,allgather=ring" doc:"collectives are algorithms of collective operations, such as bcast=multicast,barrier=multicast; the default ones if left out."`,
	"Retries":     `range:"0..7" doc:"retries is how often a packet is sent again before the queue pair fails; 7 if left out."`,
	"RNRRetries":  `range:"0..7" doc:"rnr_retries is how often a sender waits for a receive to be posted before the queue pair fails; 7, which is without end, if left out."`,
	"RNRTimer":    `doc:"rnr_timer is how long a receiver without receives asks to wait, rounded up to what its 5-bit field can say."`,
	"Excuses":     `enum:"loses duplicates reorders gives_up"`,
}

// fieldsOf returns the keys of a section, given by its struct type, with those of inlined sections.
func fieldsOf(t reflect.Type) (all fields) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			for _, in := range fieldsOf(f.Type) {
				in.index = append([]int{i}, in.index...)
				all = append(all, in)
			}
		case name != "":
			tag := f.Tag
			if t == reflect.TypeFor[workload.Config]() { // its tags have only the names
				tag = workloadTags[f.Name]
			}
			all = append(all, field{
				name: name, index: []int{i}, typ: f.Type, tag: tag,
				required: options != "omitempty", owner: t, goName: f.Name,
			})
		}
	}
	return all
}

// names returns the keys.
func (fs fields) names() []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	return names
}

// join returns the path of a key in a section; section is empty for the whole file.
func join(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}

// ImpairText returns a scenario file with the impairments of one port. words are from a command
// line: "clean" for none, or KEY=VALUE with the keys of an impairment, in both directions unless
// the key "way" is given. Error messages call the port displayName.
func ImpairText(fabric Fabric, port, displayName string, words []string) (string, error) {
	s := &Scenario{
		Version: FormatVersion, Name: "set", Title: "Impairments of a port", Fabric: fabric,
		Workload: workload.Config{Kind: workload.AllToAll}, // never run, but the format requires one
	}
	text, err := s.Marshal()
	if err != nil {
		return "", err
	}
	if len(words) == 1 && words[0] == "clean" {
		return string(text), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nimpair:\n  - on: [%q]\n", text, port)
	hasDirection := false
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return "", cli.Errorf("%q: use one of the words up, down and clean, or KEY=VALUE such as loss=1%%", w)
		}
		hasDirection = hasDirection || key == "way"
		fmt.Fprintf(&b, "    %s: %s\n", key, value)
	}
	if !hasDirection {
		b.WriteString("    way: " + Both + "\n")
	}
	// A mistake is reported here, in the user's words.
	if _, err := Parse("set.yaml", []byte(b.String())); err != nil {
		return "", ImpairError(err, displayName, words)
	}
	return b.String(), nil
}

// ImpairError rewrites an error about the text of ImpairText in the words of the command line.
func ImpairError(err error, displayName string, words []string) error {
	return TranslateErrors(err, func(key string) string {
		name, ok := strings.CutPrefix(key, "impair[0].")
		if ok && strings.HasPrefix(name, "on") {
			return displayName
		}
		for _, w := range words {
			if k, _, _ := strings.Cut(w, "="); k == name {
				return w
			}
		}
		if ok && name != "" { // a key that is missing
			return displayName + " " + strings.Join(words, " ") + ": " + name
		}
		return displayName + " " + strings.Join(words, " ")
	})
}

// ImpairKeys returns the keys that ImpairText takes.
func ImpairKeys() (keys []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Impairment]()) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch name {
		case "", "on", "from", "until": // the port and the time are fixed
		default:
			keys = append(keys, name)
		}
	}
	return keys
}

// TranslateErrors rewrites the errors of a scenario that was made from a command line. argument
// returns the part of the command line from which a key was made. Several keys may be made from one
// argument: of equal errors in a row one is left.
func TranslateErrors(err error, argument func(key string) string) error {
	var all Errors
	if !errors.As(err, &all) {
		return &cli.Error{Err: err}
	}
	lines := make([]string, 0, len(all))
	for _, e := range all {
		lines = append(lines, argument(e.Key)+": "+e.Err.Error())
	}
	return cli.Errorf("%s", strings.Join(slices.Compact(lines), "\n"))
}
