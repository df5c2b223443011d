package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// ErrShort is wrapped by all errors about truncated data.
var ErrShort = errors.New("too short")

// AppendFields appends the header described by v, a struct whose fields are pointers to
// bools and unsigned integers, byte slices and addresses, with tags:
//
//	at:"byte.bit,bits"  position: bit 0 is the most significant bit of a byte, and may be
//	                    omitted; a field without this tag is no part of the header
//	def:"number"        value of a nil field when building; default 0
//	fmt:"verb"          format in differences; default %v
//
// The first field _ has a tag size:"bytes". Byte order is big endian. AppendFields panics
// if a value does not fit its field.
func AppendFields(b []byte, v any) []byte {
	s := structOf(v)
	l := layoutOf(s.Type())
	start := len(b)
	b = append(b, make([]byte, l.size)...)
	for _, f := range l.fields {
		f.put(b[start:], s.Field(f.index), l.name)
	}
	return b
}

// ParseFields parses the header at the start of b into v, a pointer to a struct as
// [AppendFields] takes it, and returns the rest. After an error no field is set.
func ParseFields(b []byte, v any) (rest []byte, err error) {
	s := structOf(v)
	l := layoutOf(s.Type())
	if len(b) < l.size {
		return b, fmt.Errorf("%s: %w: %d of %d bytes", l.name, ErrShort, len(b), l.size)
	}
	for _, f := range l.fields {
		f.get(b, s.Field(f.index))
	}
	return b[l.size:], nil
}

// Or returns the struct v with its zero fields replaced by those of defaults. A field that is a
// struct counts as zero only if all of it is.
func Or[T any](v, defaults T) T {
	s, d := reflect.ValueOf(&v).Elem(), reflect.ValueOf(defaults)
	for i := range s.NumField() {
		if f := s.Field(i); f.CanSet() && f.IsZero() {
			f.Set(d.Field(i))
		}
	}
	return v
}

// structOf returns the struct that v is or points to.
func structOf(v any) reflect.Value { return reflect.Indirect(reflect.ValueOf(v)) }

var addrType = reflect.TypeFor[netip.Addr]()

// put writes the value v of the field, or the default if v is nil, into the header b. It panics if
// the value does not fit.
func (f *field) put(b []byte, v reflect.Value, header string) {
	switch {
	case f.kind == kindAddr:
		if a, ok := reflect.TypeAssert[netip.Addr](v); ok && a.IsValid() {
			a16 := a.As16()
			copy(b[f.bitOffset/8:], a16[:])
		}
	case f.kind == kindBytes:
		if v.Len() > f.bitCount/8 {
			panic(fmt.Sprintf("%s.%s: %d bytes do not fit %d", header, f.name, v.Len(), f.bitCount/8))
		}
		copy(b[f.bitOffset/8:], v.Bytes())
	case v.IsNil():
		putBits(b, f.bitOffset, f.bitCount, f.def)
	default:
		n := number(v.Elem())
		if f.bitCount < 64 && n>>f.bitCount != 0 {
			panic(fmt.Sprintf("%s.%s: %#x does not fit %d bits", header, f.name, n, f.bitCount))
		}
		putBits(b, f.bitOffset, f.bitCount, n)
	}
}

// get sets v to the value of the field in the header b.
func (f *field) get(b []byte, v reflect.Value) {
	switch f.kind {
	case kindAddr:
		a := netip.AddrFrom16([16]byte(b[f.bitOffset/8:])).Unmap()
		v.Set(reflect.ValueOf(a))
	case kindBytes:
		c := make([]byte, f.bitCount/8)
		copy(c, b[f.bitOffset/8:])
		v.SetBytes(c)
	default:
		n := getBits(b, f.bitOffset, f.bitCount)
		p := reflect.New(v.Type().Elem())
		if p.Elem().Kind() == reflect.Bool {
			p.Elem().SetBool(n != 0)
		} else {
			p.Elem().SetUint(n)
		}
		v.Set(p)
	}
}

// number returns the value of v, which is an unsigned integer, or a bool: 0 or 1.
func number(v reflect.Value) uint64 {
	if v.Kind() != reflect.Bool {
		return v.Uint()
	}
	if v.Bool() {
		return 1
	}
	return 0
}

// getBits returns the big-endian number in count bits of b, from bit at on.
func getBits(b []byte, at, count int) (n uint64) {
	for count > 0 {
		take := min(8-at%8, count)
		chunk := b[at/8] << (at % 8) >> (8 - take)
		n = n<<take | uint64(chunk)
		at, count = at+take, count-take
	}
	return n
}

// putBits writes the lower count bits of n into b, big-endian, from bit at on.
func putBits(b []byte, at, count int, n uint64) {
	for count > 0 {
		take := min(8-at%8, count)
		shift := 8 - at%8 - take
		mask := byte(1<<take-1) << shift
		chunk := byte(n>>(count-take)) << shift
		b[at/8] = b[at/8]&^mask | chunk&mask
		at, count = at+take, count-take
	}
}

// ParseAs parses a header of type H at the start of b, and returns it and the rest of b. If b is
// too short, h is nil and rest is b.
func ParseAs[H any](b []byte) (h *H, rest []byte) {
	h = new(H)
	rest, err := ParseFields(b, h)
	if err != nil {
		return nil, b
	}
	return h, rest
}

// layout is the layout of a header that the tags of a struct define.
type layout struct {
	name   string
	size   int // bytes
	fields []field
}

type field struct {
	index     int
	name      string
	kind      kind
	bitOffset int // from the start of the header
	bitCount  int
	def       uint64
	verb      string
}

type kind uint8

const (
	kindNumber kind = iota // a pointer to a bool or an unsigned integer
	kindBytes
	kindAddr
)

var layouts sync.Map // of reflect.Type to *layout

// layoutOf returns the layout of a struct type, cached. It panics if the tags are invalid.
func layoutOf(t reflect.Type) *layout {
	if cached, ok := layouts.Load(t); ok {
		return cached.(*layout)
	}
	l := &layout{name: t.Name()}
	for i := range t.NumField() {
		f := t.Field(i)
		if size, ok := f.Tag.Lookup("size"); ok {
			l.size = parseNumber(t, f, size)
		}
		if at, ok := f.Tag.Lookup("at"); ok {
			l.fields = append(l.fields, newField(t, f, i, at))
		}
	}
	for _, f := range l.fields {
		if f.bitOffset+f.bitCount > 8*l.size {
			panic(fmt.Sprintf("%v.%s ends after the header's %d bytes", t, f.name, l.size))
		}
	}
	layouts.Store(t, l)
	return l
}

// newField describes field sf of struct t by its tags: at (its place in the header), def (its
// default) and fmt (its format). at is the tag of that name.
func newField(t reflect.Type, sf reflect.StructField, index int, at string) field {
	f := field{index: index, name: sf.Name, verb: "%v"}
	position, width, _ := strings.Cut(at, ",")
	byteIndex, bitIndex, hasBit := strings.Cut(position, ".")
	f.bitOffset = 8 * parseNumber(t, sf, byteIndex)
	if hasBit {
		f.bitOffset += parseNumber(t, sf, bitIndex)
	}
	f.bitCount = parseNumber(t, sf, width)
	if def, ok := sf.Tag.Lookup("def"); ok {
		f.def = uint64(parseNumber(t, sf, def))
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
	if f.kind != kindNumber && (f.bitOffset%8 != 0 || f.bitCount%8 != 0) {
		panic(fmt.Sprintf("%v.%s does not lie on whole bytes", t, f.name))
	}
	return f
}

// parseNumber parses a number in a tag of field f of struct t. It panics if it is invalid.
func parseNumber(t reflect.Type, f reflect.StructField, s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("tag of %v.%s: %v", t, f.Name, err))
	}
	return int(n)
}
