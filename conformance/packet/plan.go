package packet

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// plan is the layout that the tags of a struct define.
type plan struct {
	name   string
	size   int // bytes
	fields []field
}

type field struct {
	index     int
	name      string
	kind      kind
	bit, bits int // where it begins, and its width
	def       uint64
	verb      string
}

type kind uint8

const (
	kindNumber kind = iota // a pointer to a bool or an unsigned integer
	kindBytes
	kindAddr
)

var plans sync.Map // of reflect.Type to *plan

// planOf parses the tags of a struct. It panics if they are invalid.
func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{name: t.Name()}
	for i := range t.NumField() {
		f := t.Field(i)
		if size, ok := f.Tag.Lookup("size"); ok {
			p.size = atoi(t, f, size)
		}
		if at, ok := f.Tag.Lookup("at"); ok {
			p.fields = append(p.fields, planField(t, f, i, at))
		}
	}
	for _, f := range p.fields {
		if f.bit+f.bits > 8*p.size {
			panic(fmt.Sprintf("%v.%s ends behind byte %d", t, f.name, p.size))
		}
	}
	plans.Store(t, p)
	return p
}

func planField(t reflect.Type, sf reflect.StructField, index int, at string) field {
	f := field{index: index, name: sf.Name, verb: "%v"}
	where, width, _ := strings.Cut(at, ",")
	whole, part, hasBit := strings.Cut(where, ".")
	f.bit = 8 * atoi(t, sf, whole)
	if hasBit {
		f.bit += atoi(t, sf, part)
	}
	f.bits = atoi(t, sf, width)
	if def, ok := sf.Tag.Lookup("def"); ok {
		f.def = uint64(atoi(t, sf, def))
	}
	if verb, ok := sf.Tag.Lookup("fmt"); ok {
		f.verb = verb
	}
	switch {
	case sf.Type == addrType:
		f.kind = kindAddr
	case sf.Type.Kind() == reflect.Slice:
		f.kind = kindBytes
	case sf.Type.Kind() != reflect.Pointer:
		panic(fmt.Sprintf("%v.%s is a %v: a field is a pointer, a []byte or a netip.Addr", t, f.name, sf.Type))
	}
	if f.kind != kindNumber && (f.bit%8 != 0 || f.bits%8 != 0) {
		panic(fmt.Sprintf("%v.%s does not lie on whole bytes", t, f.name))
	}
	return f
}

func atoi(t reflect.Type, f reflect.StructField, s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("tag of %v.%s: %v", t, f.Name, err))
	}
	return int(n)
}
