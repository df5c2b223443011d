package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrVersion means that the two ends have different versions of a protocol.
var ErrVersion = errors.New("the two ends speak different versions")

// Protocol is a protocol as one end sees it.
type Protocol struct {
	Version  uint64
	Us, Them string        // the two ends, in errors
	MaxHello int           // limit of the peer's hello
	Timeout  time.Duration // limits the wait for the peer's hello; 0 for none
}

// SendHello writes the hello of this end: the version of p, and body as JSON.
func (c *Conn) SendHello(p Protocol, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.Write(Frame{Kind: Hello, Num: p.Version, Body: b})
}

// ReadHello reads the hello of the peer and stores its JSON body in the variable that body points
// to. It fails after p.Timeout, if that is set. It returns ErrVersion if the peer has another
// version, and a CloseError if the peer sent a Close frame instead.
func (c *Conn) ReadHello(p Protocol, body any) error {
	if p.Timeout > 0 {
		if err := c.stream.SetReadDeadline(time.Now().Add(p.Timeout)); err != nil {
			return err
		}
		defer c.stream.SetReadDeadline(time.Time{}) //nolint:errcheck // setting a deadline has succeeded above
	}
	f, err := read(c.reader, Limits{Hello: p.MaxHello, Close: MaxReason}, nil)
	switch {
	case err != nil:
		return err
	case f.Kind == Close:
		return &CloseError{string(f.Body), f.Num}
	case f.Num < p.Version:
		return fmt.Errorf("%w: %s has version %d, %s has %d: update %[2]s", ErrVersion, p.Them, f.Num, p.Us, p.Version)
	case f.Num > p.Version:
		return fmt.Errorf("%w: %s has version %d, %s has %d: update %[4]s", ErrVersion, p.Them, f.Num, p.Us, p.Version)
	}
	if err := unmarshalStrict(f.Body, body); err != nil {
		return fmt.Errorf("%w: invalid hello: %w", ErrProtocol, err)
	}
	return nil
}

// unmarshalStrict decodes JSON text into v. It rejects unknown fields, and more than one value.
func unmarshalStrict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
