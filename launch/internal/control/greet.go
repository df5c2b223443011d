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
type Greeting struct {
	PID int    `json:"pid"`
	Go  string `json:"go,omitempty"` // the runtime's version, where there is one
}

// Terms are what a launcher tells a rank that it takes in.
type Terms struct {
	Rank       int    `json:"rank"`
	Size       int    `json:"size"`
	Host       string `json:"host"`
	MaxMessage int    `json:"max_message"`
	MaxReport  int    `json:"max_report"`
}

// SayHello is the rank's half of the start: it writes a greeting and reads the
// terms and the job.
func SayHello(rw io.ReadWriter, g Greeting) (Terms, []byte, error) {
	var t Terms
	body, err := json.Marshal(g)
	if err != nil {
		return t, nil, err
	}
	if _, err := rw.Write(Frame{Kind: Hello, Num: Version, Body: body}.Append(nil)); err != nil {
		return t, nil, err
	}
	f, err := Read(rw, Limits{Welcome: MaxGreeting, Refuse: MaxReason})
	if err != nil {
		return t, nil, err
	}
	if f.Kind == Refuse {
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
func HearHello(r io.Reader) (Greeting, error) {
	var g Greeting
	f, err := Read(r, Limits{Hello: MaxGreeting})
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
func Answer(t Terms, job []byte) ([]Frame, error) {
	body, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxGreeting {
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
