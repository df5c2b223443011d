package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Version is that of the language. Both sides come from one build as a rule, so
// there is one version and no negotiation: a stranger is refused with a reason.
const Version = 1

// Greeting is how a rank introduces itself.
type HelloBody struct {
	PID int    `json:"pid"`
	Go  string `json:"go,omitempty"` // the runtime's version, where there is one
}

// Terms are what a launcher tells a rank that it takes in.
type WelcomeBody struct {
	Rank       int    `json:"rank"`
	Size       int    `json:"size"`
	Host       string `json:"host"`
	MaxMessage int    `json:"max_message"`
	MaxReport  int    `json:"max_report"`
}

// SayHello is the rank's half of the start: it writes a greeting and reads the
// terms and the job.
func Handshake(rw io.ReadWriter, g HelloBody) (WelcomeBody, []byte, error) {
	var t WelcomeBody
	body, err := json.Marshal(g)
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
		return t, nil, fmt.Errorf("refused by the launcher: %s", f.Body)
	}
	if err := strictJSON(f.Body, &t); err != nil {
		return t, nil, fmt.Errorf("%w: welcome: %w", ErrProtocol, err)
	}
	if t.Size < 1 || t.Rank < 0 || t.Rank >= t.Size || t.MaxMessage < 0 || t.MaxReport < 0 {
		return t, nil, fmt.Errorf("%w: welcome as rank %d of %d, which cannot be", ErrProtocol, t.Rank, t.Size)
	}
	f, err = Read(rw, Limits{Job: MaxJob})
	if err != nil {
		return t, nil, err
	}
	return t, f.Body, nil
}

// HearHello reads a rank's greeting. It returns io.EOF if the peer closes the
// channel without a word.
func ReadHello(r io.Reader) (HelloBody, error) {
	var g HelloBody
	f, err := Read(r, Limits{Hello: MaxHello})
	if err != nil {
		return g, err
	}
	if f.Num != Version {
		return g, fmt.Errorf("%w: the rank speaks version %d, the launcher %d: build both from one source",
			ErrProtocol, f.Num, Version)
	}
	if err := strictJSON(f.Body, &g); err != nil {
		return g, fmt.Errorf("%w: hello: %w", ErrProtocol, err)
	}
	return g, nil
}

// Answer is the launcher's half: what to send a rank that said hello.
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

func strictJSON(b []byte, into any) error {
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
