package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Version is the protocol version. There is no negotiation: the launcher rejects other
// versions, because both sides usually come from one build.
const Version = 1

// HelloBody is the body of a Hello frame.
type HelloBody struct {
	PID int    `json:"pid"`
	Go  string `json:"go,omitempty"` // runtime.Version; empty if not a Go program
}

// WelcomeBody is the body of a Welcome frame.
type WelcomeBody struct {
	Rank       int    `json:"rank"`
	Size       int    `json:"size"`
	Host       string `json:"host"`
	MaxMessage int    `json:"max_message"`
	MaxReport  int    `json:"max_report"`
}

// Handshake is the rank's side of the handshake: it sends a hello and reads the welcome
// and the job.
func Handshake(rw io.ReadWriter, h HelloBody) (WelcomeBody, []byte, error) {
	var t WelcomeBody
	body, err := json.Marshal(h)
	if err != nil {
		return t, nil, err
	}
	if _, err := rw.Write(Frame{Kind: Hello, Num: Version, Body: body}.Append(nil)); err != nil {
		return t, nil, err
	}
	f, err := Read(rw, Limits{Welcome: MaxHello, Reject: MaxReason})
	if err != nil {
		return t, nil, err
	}
	if f.Kind == Reject {
		return t, nil, fmt.Errorf("rejected by the launcher: %s", f.Body)
	}
	if err := unmarshalStrict(f.Body, &t); err != nil {
		return t, nil, fmt.Errorf("%w: welcome: %w", ErrProtocol, err)
	}
	if t.Size < 1 || t.Rank < 0 || t.Rank >= t.Size || t.MaxMessage < 0 || t.MaxReport < 0 {
		return t, nil, fmt.Errorf("%w: invalid welcome as rank %d of %d", ErrProtocol, t.Rank, t.Size)
	}
	f, err = Read(rw, Limits{Job: MaxJob})
	if err != nil {
		return t, nil, err
	}
	return t, f.Body, nil
}

// ReadHello reads the hello of a rank. It returns io.EOF if the rank closes the channel
// first.
func ReadHello(r io.Reader) (HelloBody, error) {
	var g HelloBody
	f, err := Read(r, Limits{Hello: MaxHello})
	if err != nil {
		return g, err
	}
	if f.Num != Version {
		return g, fmt.Errorf("%w: the rank has protocol version %d, the launcher %d: build both from one source",
			ErrProtocol, f.Num, Version)
	}
	if err := unmarshalStrict(f.Body, &g); err != nil {
		return g, fmt.Errorf("%w: hello: %w", ErrProtocol, err)
	}
	return g, nil
}

// WelcomeFrames returns the launcher's reply to a hello.
func WelcomeFrames(t WelcomeBody, job []byte) ([]Frame, error) {
	body, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxHello {
		return nil, fmt.Errorf("host name of %d bytes is too long", len(t.Host))
	}
	return []Frame{{Kind: Welcome, Body: body}, {Kind: Job, Body: job}}, nil
}

func unmarshalStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("more than one value")
	}
	return nil
}
