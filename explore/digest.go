package explore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
)

// Digest computes fingerprints of machines by reflection: of all that can be reached from their
// values. It is for machines whose state is large; to encode a state by hand is faster.
//
// A pointer counts as the object that it points to, so that equal states at other addresses have
// equal fingerprints. A map counts without its order. Slices count with their elements up to their
// length. Functions, channels and keys of maps that contain pointers must be omitted.
type Digest struct {
	// Types and Fields encode values of a type ("mono.Time") or a field of a struct
	// ("segment.sentAt"), such as a time as relative to that of the machine. A nil function omits the
	// value, which must not matter for the future of the machine: a counter, or unused memory.
	Types, Fields map[string]func(reflect.Value) uint64

	b     []byte
	seen  map[object]int
	plans map[reflect.Type][]field
}

// object is what a pointer points to. Its type tells a struct from its first field.
type object struct {
	at uintptr
	of reflect.Type
}

// field is a field of a struct that counts.
type field struct {
	index  int
	encode func(reflect.Value) uint64 // nil: by reflection
}

// Sum returns the fingerprint of values.
func (d *Digest) Sum(values ...any) [16]byte {
	d.b = d.b[:0]
	if d.plans == nil {
		d.seen, d.plans = map[object]int{}, map[reflect.Type][]field{}
	}
	clear(d.seen)
	for _, v := range values {
		d.add(reflect.ValueOf(v))
	}
	return Hash(d.b)
}

func (d *Digest) uint(n uint64) { d.b = binary.AppendUvarint(d.b, n) }

// add appends a value.
func (d *Digest) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid: // a nil interface
		d.b = append(d.b, 0)
	case reflect.Bool:
		n := byte(0)
		if v.Bool() {
			n = 1
		}
		d.b = append(d.b, n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.b = binary.AppendVarint(d.b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		d.uint(v.Uint())
	case reflect.String:
		d.uint(uint64(v.Len()))
		d.b = append(d.b, v.String()...)
	case reflect.Struct:
		d.addStruct(v)
	case reflect.Slice, reflect.Array:
		d.addList(v)
	case reflect.Map:
		d.addMap(v)
	case reflect.Pointer:
		d.addPointer(v)
	case reflect.Interface:
		if v = v.Elem(); v.IsValid() {
			d.b = append(append(d.b, 1), v.Type().String()...)
		}
		d.add(v)
	default:
		panic(fmt.Sprintf("explore: Digest of a %v: omit it with Fields or Types", v.Type()))
	}
}

func (d *Digest) addStruct(v reflect.Value) {
	for _, f := range d.plan(v.Type()) {
		if f.encode != nil {
			d.uint(f.encode(v.Field(f.index)))
		} else {
			d.add(v.Field(f.index))
		}
	}
}

// plan returns the fields of a type of structs that count.
func (d *Digest) plan(t reflect.Type) []field {
	plan, known := d.plans[t]
	if known {
		return plan
	}
	for i := range t.NumField() {
		f := t.Field(i)
		encode, special := d.Fields[t.Name()+"."+f.Name]
		if !special {
			encode, special = d.Types[f.Type.String()]
		}
		if !special || encode != nil {
			plan = append(plan, field{i, encode})
		}
	}
	d.plans[t] = plan
	return plan
}

func (d *Digest) addList(v reflect.Value) {
	n := v.Len()
	d.uint(uint64(n))
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		d.b = append(d.b, v.Bytes()...)
		return
	}
	for i := range n {
		d.add(v.Index(i))
	}
}

// addMap appends the entries of a map in the order of their encoded keys.
func (d *Digest) addMap(v reflect.Value) {
	type entry struct {
		key   []byte
		value reflect.Value
	}
	var all []entry
	begin := len(d.b)
	for i := v.MapRange(); i.Next(); {
		d.add(i.Key())
		all = append(all, entry{bytes.Clone(d.b[begin:]), i.Value()})
		d.b = d.b[:begin]
	}
	slices.SortFunc(all, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	d.uint(uint64(len(all)))
	for _, e := range all {
		d.b = append(d.b, e.key...)
		d.add(e.value)
	}
}

// addPointer appends the object, or its number if it was appended already.
func (d *Digest) addPointer(v reflect.Value) {
	if v.IsNil() {
		d.uint(0)
		return
	}
	o := object{v.Pointer(), v.Type()}
	number, seen := d.seen[o]
	if !seen {
		number = len(d.seen) + 1
		d.seen[o] = number
	}
	d.uint(uint64(number))
	if !seen {
		d.add(v.Elem())
	}
}
