package control

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

var (
	golden      = []byte{0, 0, 0, 12, byte(FirstProtocolKind), 0, 0, 0, 0, 0, 0, 1, 2, 'a', 'b', 'c'}
	goldenFrame = Frame{Kind: FirstProtocolKind, Num: 258, Body: []byte("abc")}
	wideLimits  = Limits{FirstProtocolKind: 1 << 20, Ping: 0}
	ownNames    = []string{"data"}
)

func TestFrameRoundTrip(t *testing.T) {
	if got := goldenFrame.Append(nil); !bytes.Equal(got, golden) {
		t.Errorf("Append = %x, want %x", got, golden)
	}
	r := bytes.NewReader(append(bytes.Clone(golden), golden...))
	for range 2 {
		f, err := read(r, wideLimits, ownNames)
		if err != nil || f.Kind != FirstProtocolKind || f.Num != 258 || string(f.Body) != "abc" {
			t.Fatalf("read = %+v, %v", f, err)
		}
	}
	if _, err := read(r, wideLimits, ownNames); !errors.Is(err, io.EOF) {
		t.Errorf("read at the end = %v, want EOF", err)
	}
}

func TestReadRejectsEveryPrefix(t *testing.T) {
	for n := 1; n < len(golden); n++ {
		if _, err := read(bytes.NewReader(golden[:n]), wideLimits, ownNames); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read of %d bytes = %v, want ErrUnexpectedEOF", n, err)
		}
	}
}

func TestReadRejectsFramesBeyondLimits(t *testing.T) {
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"kind", Frame{Kind: 250}.Append(nil), "unexpected frame: kind 0xfa"},
		{"direction", Frame{Kind: Hello}.Append(nil), "unexpected frame: hello"},
		{"body", Frame{Kind: Ping, Body: []byte{1}}.Append(nil), "ping of 1 bytes, the limit is 0"},
		{"length", append([]byte{255, 255, 255, 255}, golden[4:]...), "data of 4294967286 bytes"},
		{"header", append([]byte{0, 0, 0, 8}, golden[4:]...), "shorter than a header"},
	}
	for _, tt := range tests {
		_, err := read(bytes.NewReader(tt.b), wideLimits, ownNames)
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A peer that announces a long body but sends little must not cause a large allocation.
func TestReadAllocatesOnlyForReceivedBytes(t *testing.T) {
	truncated := Frame{Kind: FirstProtocolKind, Body: make([]byte, 64<<20)}.Append(nil)[:headerLen+10]
	before := allocated(t)
	if _, err := read(bytes.NewReader(truncated), Limits{FirstProtocolKind: math.MaxInt32}, ownNames); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if n := allocated(t) - before; n > 1<<20 {
		t.Errorf("%d bytes were allocated for 10", n)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(golden)
	f.Add(Frame{Kind: Ping, Num: math.MaxUint64}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var again []byte
		for {
			frame, err := read(r, wideLimits, ownNames)
			if err != nil {
				break
			}
			again = frame.Append(again)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("read then Append: %x -> %x", b, again)
		}
	})
}
