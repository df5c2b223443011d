package packet

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
)

// Difference is a field that is not as expected.
type Difference struct{ Field, Want, Got string }

// Differences are all of them, in the order of the packet. None means that it
// matches.
type Differences []Difference

// String says it in one line: "PSN: want 100, got 101; MSN: want 1, got 2".
func (d Differences) String() string {
	parts := make([]string, len(d))
	for i, x := range d {
		parts[i] = x.Field + ": want " + x.Want + ", got " + x.Got
	}
	return strings.Join(parts, "; ")
}

// Want says what was expected of the fields that differ: "PSN 100, MSN 1".
func (d Differences) Want() string { return d.side(func(x Difference) string { return x.Want }) }

// Got says what they are: "PSN 101, MSN 2".
func (d Differences) Got() string { return d.side(func(x Difference) string { return x.Got }) }

func (d Differences) side(of func(Difference) string) string {
	parts := make([]string, len(d))
	for i, x := range d {
		parts[i] = x.Field + " " + of(x)
	}
	return strings.Join(parts, ", ")
}

// Add notes that a field differs.
func (d *Differences) Add(field, want, got string) {
	*d = append(*d, Difference{field, want, got})
}

// DiffFields compares the headers want and got, structs of one type as of
// [AppendFields], or pointers to them, and adds to d where a field is set in want and
// another in got. The names of the fields are put behind prefix.
func DiffFields(d *Differences, prefix string, want, got any) {
	w, g := structOf(want), structOf(got)
	for _, f := range planOf(w.Type()).fields {
		f.diff(d, prefix, w.Field(f.index), g.Field(f.index))
	}
}

// DiffValue compares one field; nil in want is anything.
func DiffValue[T comparable](d *Differences, name, verb string, want, got *T) {
	switch {
	case want == nil:
	case got == nil:
		d.Add(name, fmt.Sprintf(verb, *want), "none")
	case *want != *got:
		d.Add(name, fmt.Sprintf(verb, *want), fmt.Sprintf(verb, *got))
	}
}

// DiffAddr compares addresses; the zero one in want is anything.
func DiffAddr(d *Differences, name string, want, got netip.Addr) {
	if want.IsValid() && want.Unmap() != got.Unmap() {
		d.Add(name, want.String(), got.String())
	}
}

// DiffBytes compares contents; nil in want is anything, and an empty slice is
// nothing at all.
func DiffBytes(d *Differences, name string, want, got []byte) {
	if want == nil || bytes.Equal(want, got) {
		return
	}
	if len(want) != len(got) {
		d.Add(name, fmt.Sprintf("%d B", len(want)), fmt.Sprintf("%d B", len(got)))
		return
	}
	at, n := 0, 0
	for i := len(want) - 1; i >= 0; i-- {
		if want[i] != got[i] {
			at, n = i, n+1
		}
	}
	end := min(at+8, len(want))
	d.Add(name, fmt.Sprintf("%x at byte %d", want[at:end], at),
		fmt.Sprintf("%x there (%d of %d bytes differ)", got[at:end], n, len(want)))
}

func (f *field) diff(d *Differences, prefix string, want, got reflect.Value) {
	name := prefix + f.name
	switch f.kind {
	case kindAddr:
		w, _ := reflect.TypeAssert[netip.Addr](want)
		g, _ := reflect.TypeAssert[netip.Addr](got)
		DiffAddr(d, name, w, g)
	case kindBytes:
		if want.IsNil() {
			return
		}
		// The field has one length on the wire, and zeros behind what it is given.
		w, g := make([]byte, f.bits/8), make([]byte, f.bits/8)
		copy(w, want.Bytes())
		copy(g, got.Bytes())
		DiffBytes(d, name, w, g)
	default:
		switch {
		case want.IsNil():
		case got.IsNil():
			d.Add(name, fmt.Sprintf(f.verb, want.Elem()), "none")
		case !want.Elem().Equal(got.Elem()):
			d.Add(name, fmt.Sprintf(f.verb, want.Elem()), fmt.Sprintf(f.verb, got.Elem()))
		}
	}
}
