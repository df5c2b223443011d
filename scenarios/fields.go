package scenarios

import (
	"reflect"
	"strings"

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
	"Kind": `enum:"stream pingpong random incast all-to-all halo calls" doc:"stream (rank 2i to rank 2i+1, one way), pingpong (rank 2i and rank 2i+1, ` +
		`a message at a time), random (rank 2i and rank 2i+1: every verb, checked against a model), incast (every rank to rank 0), all-to-all (every rank ` +
		`to every other), halo (neighbours on a ring write into each other's borders, round by round), calls (connections made through the connection ` +
		`manager, used and closed)."`,
	"Ranks":      `range:"2..1024" doc:"ranks is how many hosts have one, beginning with host0; all if left out."`,
	"Services":   `enum:"rc srq xrc uc ud rd"`,
	"Op":         `enum:"send write read"`,
	"Messages":   `range:"1..16777216"`,
	"Bytes":      `unit:"bytes" range:"1..67108864"`,
	"Depth":      `range:"1..4096"`,
	"MTU":        `unit:"bytes" range:"256..4096"`,
	"Timeout":    `doc:"timeout is the time before a packet is sent again, rounded up to 4.096 us times a power of two."`,
	"Retries":    `range:"0..7" doc:"retries is how often a packet is sent again before the queue pair fails; 7 if left out."`,
	"RNRRetries": `range:"0..7" doc:"rnr_retries is how often a sender waits for a receive to be posted before the queue pair fails; 7, which is without end, if left out."`,
	"RNRTimer":   `doc:"rnr_timer is how long a receiver without receives asks to wait, rounded up to what its 5-bit field can say."`,
	"Excuses":    `enum:"loses duplicates reorders gives_up"`,
}

var typeOfWorkload = reflect.TypeFor[workload.Config]()

// fieldsOf returns the keys of a section, including inlined sections.
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
			if t == typeOfWorkload {
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

func (fs fields) find(name string) (field, bool) {
	for _, f := range fs {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (fs fields) names() []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	return names
}

// join returns the path of a key in a section.
func join(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}
