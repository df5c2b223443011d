package packet

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
)

// NoValue is the actual value of a field that a packet does not have.
const NoValue = "none"

// Difference is a field that differs from the expected value.
type Difference struct{ Field, Want, Got string }

// Differences lists the fields that differ, in the order of the packet.
type Differences []Difference

// String formats the differences as "PSN: want 100, got 101; MSN: want 1, got 2".
func (d Differences) String() string {
	parts := make([]string, len(d))
	for i, difference := range d {
		parts[i] = difference.Field + ": want " + difference.Want + ", got " + difference.Got
	}
	return strings.Join(parts, "; ")
}

// Want formats the expected values: "PSN 100, MSN 1".
func (d Differences) Want() string {
	return d.formatValues(func(x Difference) string { return x.Want })
}

// Got formats the actual values: "PSN 101, MSN 2".
func (d Differences) Got() string { return d.formatValues(func(x Difference) string { return x.Got }) }

// formatValues formats one value of each difference, chosen by value, after its field's name.
func (d Differences) formatValues(value func(Difference) string) string {
	parts := make([]string, len(d))
	for i, difference := range d {
		parts[i] = difference.Field + " " + value(difference)
	}
	return strings.Join(parts, ", ")
}

// Add adds a field with its expected and its actual value.
func (d *Differences) Add(field, want, got string) {
	*d = append(*d, Difference{field, want, got})
}

// DiffFields compares two headers of one type, which are structs as [AppendFields] takes them, or
// pointers to such. It adds to d the fields that are set in want and differ in got, with prefix
// before their names.
func DiffFields(d *Differences, prefix string, want, got any) {
	w, g := structOf(want), structOf(got)
	for _, f := range layoutOf(w.Type()).fields {
		f.diff(d, prefix, w.Field(f.index), g.Field(f.index))
	}
}

// DiffValue adds the field called name to d if its values differ; nil in want matches any value.
// verb is the format of values.
func DiffValue[T comparable](d *Differences, name, verb string, want, got *T) {
	switch {
	case want == nil:
	case got == nil:
		d.Add(name, fmt.Sprintf(verb, *want), NoValue)
	case *want != *got:
		d.Add(name, fmt.Sprintf(verb, *want), fmt.Sprintf(verb, *got))
	}
}

// DiffAddr adds the address called name to d if want and got differ. An invalid want matches any.
func DiffAddr(d *Differences, name string, want, got netip.Addr) {
	if want.IsValid() && want.Unmap() != got.Unmap() {
		d.Add(name, want.String(), got.String())
	}
}

// DiffBytes adds the contents called name to d if they differ: the lengths, or up to eight bytes
// from the first difference on. nil in want matches any contents, an empty slice only empty ones.
func DiffBytes(d *Differences, name string, want, got []byte) {
	if want == nil || bytes.Equal(want, got) {
		return
	}
	if len(want) != len(got) {
		d.Add(name, fmt.Sprintf("%d B", len(want)), fmt.Sprintf("%d B", len(got)))
		return
	}
	const maxShown = 8
	first, differing := 0, 0
	for i := len(want) - 1; i >= 0; i-- {
		if want[i] != got[i] {
			first, differing = i, differing+1
		}
	}
	end := min(first+maxShown, len(want))
	d.Add(name, fmt.Sprintf("%x at byte %d", want[first:end], first),
		fmt.Sprintf("%x there (%d of %d bytes differ)", got[first:end], differing, len(want)))
}

// diff adds field f to d if its value is set in want and differs in got.
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
		// The field has a fixed length on the wire, filled up with zeros.
		w, g := make([]byte, f.bitCount/8), make([]byte, f.bitCount/8)
		copy(w, want.Bytes())
		copy(g, got.Bytes())
		DiffBytes(d, name, w, g)
	default:
		switch {
		case want.IsNil():
		case got.IsNil():
			d.Add(name, fmt.Sprintf(f.verb, want.Elem()), NoValue)
		case !want.Elem().Equal(got.Elem()):
			d.Add(name, fmt.Sprintf(f.verb, want.Elem()), fmt.Sprintf(f.verb, got.Elem()))
		}
	}
}

// DiffHeader adds to d the fields in which two optional headers differ, with prefix before their
// names. nil in want matches any header. If only got is nil, it adds one difference, called name.
func DiffHeader[H any](d *Differences, name, prefix string, want, got *H) {
	switch {
	case want == nil:
	case got == nil:
		d.Add(name, "one", NoValue)
	default:
		DiffFields(d, prefix, want, got)
	}
}

// Line describes a packet for people: parts that are separated by spaces.
type Line []string

// Addf adds a formatted part to the line.
func (l *Line) Addf(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *Line) String() string { return strings.Join(*l, " ") }

// AddFlag adds the name of a flag to the line if the flag is set.
func (l *Line) AddFlag(name string, flag *bool) {
	if Get(flag, false) {
		l.Addf("%s", name)
	}
}

// AddField adds the value of a field, in the given format, to the line l if v is not nil.
func AddField[T any](l *Line, format string, v *T) {
	if v != nil {
		l.Addf(format, *v)
	}
}
