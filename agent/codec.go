package agent

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/fabrictest/fabrictest/control"
)

// handle identifies an object at the agent. 0 is nil.
type handle uint32

// foreign is the handle of objects that are not the agent's: of another device, or
// implemented by the program.
const foreign handle = ^handle(0)

// objects maps objects to handles and back, for values of interface types.
type objects interface {
	handleOf(object any) handle
	// objectOf returns the object of a handle as a value of interface type t.
	objectOf(h handle, t reflect.Type) (reflect.Value, error)
}

// Values are encoded field by field in the order of declaration: numbers as varints,
// slices and strings with their length first. Types are not encoded: both ends have the same,
// which readHello checks by protocolHash.

var errBadMessage = fmt.Errorf("%w: malformed message", control.ErrProtocol)

var (
	binaryMarshaler   = reflect.TypeFor[encoding.BinaryMarshaler]()
	binaryUnmarshaler = reflect.TypeFor[encoding.BinaryUnmarshaler]()
)

// codec is the encoding of a type.
type codec struct {
	t    reflect.Type
	kind reflect.Kind // Invalid for types with their own encoding
	// minLen is the minimum number of bytes of a value.
	minLen  int
	fields  []*codec // fields of a struct
	elem    *codec   // element of a slice or an array
	ofBytes bool     // the elements are bytes
}

var codecs sync.Map // of types

// codecOf returns the encoding of type t. It computes each encoding once and keeps it. Types that
// encode themselves as encoding.BinaryMarshaler have the kind Invalid. Any value but a struct or an
// array takes a byte or more.
func codecOf(t reflect.Type) *codec {
	if p, ok := codecs.Load(t); ok {
		return p.(*codec)
	}
	p := &codec{t: t, kind: t.Kind(), minLen: 1}
	switch p.kind {
	case reflect.Struct:
		if t.Implements(binaryMarshaler) && reflect.PointerTo(t).Implements(binaryUnmarshaler) {
			p.kind = reflect.Invalid
			break
		}
		p.minLen = 0
		for i := range t.NumField() {
			f := codecOf(t.Field(i).Type)
			p.fields = append(p.fields, f)
			p.minLen += f.minLen
		}
	case reflect.Array, reflect.Slice:
		p.elem = codecOf(t.Elem())
		p.ofBytes = p.elem.kind == reflect.Uint8
		if p.kind == reflect.Array {
			p.minLen = t.Len() * p.elem.minLen
		}
	case reflect.Bool, reflect.String, reflect.Interface,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
	default:
		panic(fmt.Sprintf("agent: values of type %v cannot be encoded", t))
	}
	codecs.Store(t, p)
	return p
}

// append encodes v, whose type is that of the codec or implements it, and appends it to b. objs has
// the handles of objects.
func (p *codec) append(b []byte, v reflect.Value, objs objects) []byte {
	switch p.kind {
	case reflect.Invalid: // the type encodes itself
		text, err := v.Interface().(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			panic(fmt.Sprintf("agent: %v: %v", p.t, err)) // only addresses are encoded here, which never fail
		}
		return append(binary.AppendUvarint(b, uint64(len(text))), text...)
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Slice:
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		if p.ofBytes {
			return append(b, v.Bytes()...)
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			b = p.elem.append(b, v.Index(i), objs)
		}
		return b
	case reflect.Struct:
		for i, f := range p.fields {
			b = f.append(b, v.Field(i), objs)
		}
		return b
	default: // reflect.Interface
		h := handle(0)
		if v.IsValid() && (v.Kind() != reflect.Interface || !v.IsNil()) {
			h = objs.handleOf(v.Interface())
		}
		return binary.AppendUvarint(b, uint64(h))
	}
}

// parse decodes v from the start of b and returns the rest.
func (p *codec) parse(b []byte, v reflect.Value, objs objects) (_ []byte, err error) {
	switch p.kind {
	case reflect.Invalid: // the type decodes itself
		text, rest, err := parseBytes(b)
		if err != nil {
			return nil, err
		}
		if err := v.Addr().Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(text); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadMessage, err)
		}
		return rest, nil
	case reflect.Bool:
		if len(b) == 0 || b[0] > 1 {
			return nil, fmt.Errorf("%w: invalid bool", errBadMessage)
		}
		v.SetBool(b[0] == 1)
		return b[1:], nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, size := binary.Varint(b)
		if size <= 0 || v.OverflowInt(n) {
			return nil, fmt.Errorf("%w: invalid number of type %v", errBadMessage, p.t)
		}
		v.SetInt(n)
		return b[size:], nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, size := binary.Uvarint(b)
		if size <= 0 || v.OverflowUint(n) {
			return nil, fmt.Errorf("%w: invalid number of type %v", errBadMessage, p.t)
		}
		v.SetUint(n)
		return b[size:], nil
	case reflect.String:
		text, rest, err := parseBytes(b)
		if err != nil {
			return nil, err
		}
		v.SetString(string(text))
		return rest, nil
	case reflect.Slice:
		return p.parseSlice(b, v, objs)
	case reflect.Array:
		for i := range v.Len() {
			if b, err = p.elem.parse(b, v.Index(i), objs); err != nil {
				return nil, err
			}
		}
		return b, nil
	case reflect.Struct:
		for i, f := range p.fields {
			if b, err = f.parse(b, v.Field(i), objs); err != nil {
				return nil, fmt.Errorf("%s: %w", p.t.Field(i).Name, err)
			}
		}
		return b, nil
	default: // reflect.Interface
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(foreign) {
			return nil, fmt.Errorf("%w: invalid handle", errBadMessage)
		}
		if n == 0 {
			v.SetZero()
			return b[size:], nil
		}
		object, err := objs.objectOf(handle(n), p.t)
		if err != nil {
			return nil, err
		}
		v.Set(object)
		return b[size:], nil
	}
}

// parseSlice decodes a slice: its length plus 1, or 0 for nil, and its elements.
func (p *codec) parseSlice(b []byte, v reflect.Value, objs objects) ([]byte, error) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, fmt.Errorf("%w: invalid length", errBadMessage)
	}
	b = b[size:]
	if n == 0 {
		v.SetZero()
		return b, nil
	}
	n--
	// Check the length before allocating memory for it.
	if n > uint64(len(b)/max(1, p.elem.minLen)) {
		return nil, fmt.Errorf("%w: %d elements in %d bytes", errBadMessage, n, len(b))
	}
	v.Set(reflect.MakeSlice(p.t, int(n), int(n)))
	if p.ofBytes {
		reflect.Copy(v, reflect.ValueOf(b[:n]))
		return b[n:], nil
	}
	var err error
	for i := range int(n) {
		if b, err = p.elem.parse(b, v.Index(i), objs); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return b, nil
}

// parseBytes decodes a length and that many bytes.
func parseBytes(b []byte) (text, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, fmt.Errorf("%w: text exceeds the message", errBadMessage)
	}
	b = b[size:]
	return b[:n], b[n:], nil
}

// describe writes a description of the encoding of a type. Client and agent compare it.
func (p *codec) describe(w *strings.Builder) {
	switch p.kind {
	case reflect.Struct:
		w.WriteByte('{')
		for i, f := range p.fields {
			w.WriteString(p.t.Field(i).Name)
			w.WriteByte(' ')
			f.describe(w)
			w.WriteByte(';')
		}
		w.WriteByte('}')
	case reflect.Slice:
		w.WriteString("[]")
		p.elem.describe(w)
	case reflect.Array:
		fmt.Fprintf(w, "[%d]", p.t.Len())
		p.elem.describe(w)
	case reflect.Interface, reflect.Invalid:
		w.WriteString(p.t.String())
	default:
		w.WriteString(p.kind.String())
	}
}

// encode appends the message that m points to.
func encode(b []byte, m any, objs objects) []byte {
	v := reflect.ValueOf(m).Elem()
	return codecOf(v.Type()).append(b, v, objs)
}

// decode decodes b into the message that m points to. Data after the message is an error.
func decode(b []byte, m any, objs objects) error {
	rest, err := decodeFront(b, m, objs)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d trailing bytes", errBadMessage, len(rest))
	}
	return err
}

// decodeFront decodes the start of b into the message that m points to, and returns the rest of b.
func decodeFront(b []byte, m any, objs objects) ([]byte, error) {
	v := reflect.ValueOf(m).Elem()
	return codecOf(v.Type()).parse(b, v, objs)
}
