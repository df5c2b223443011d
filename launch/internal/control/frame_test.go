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
	golden      = []byte{0, 0, 0, 12, byte(Data), 0, 0, 0, 0, 0, 0, 1, 2, 'a', 'b', 'c'}
	goldenFrame = Frame{Kind: Data, Num: 258, Body: []byte("abc")}
	wideLimits  = Limits{Data: 1 << 20, Ping: 0}
)

func TestFrameRoundTrip(t *testing.T) {
	if got := goldenFrame.Append(nil); !bytes.Equal(got, golden) {
		t.Errorf("Append = %x, want %x", got, golden)
	}
	r := bytes.NewReader(append(bytes.Clone(golden), golden...))
	for range 2 {
		f, err := Read(r, wideLimits)
		if err != nil || f.Kind != Data || f.Num != 258 || string(f.Body) != "abc" {
			t.Fatalf("Read = %+v, %v", f, err)
		}
	}
	if _, err := Read(r, wideLimits); !errors.Is(err, io.EOF) {
		t.Errorf("Read at the end = %v, want EOF", err)
	}
}

func TestReadRejectsEveryPrefix(t *testing.T) {
	for n := 1; n < len(golden); n++ {
		if _, err := Read(bytes.NewReader(golden[:n]), wideLimits); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Read of %d bytes = %v, want ErrUnexpectedEOF", n, err)
		}
	}
}

func TestReadRejectsFramesBeyondLimits(t *testing.T) {
	tests := []struct {
		name string
		b    []byte
		says string
	}{
		{"kind", Frame{Kind: 250}.Append(nil), "unknown kind 0xfa"},
		{"direction", Frame{Kind: Hello}.Append(nil), "unexpected message of hello"},
		{"body", Frame{Kind: Ping, Body: []byte{1}}.Append(nil), "ping of 1 bytes, the limit is 0"},
		{"length", append([]byte{255, 255, 255, 255}, golden[4:]...), "data of 4294967286 bytes"},
		{"header", append([]byte{0, 0, 0, 8}, golden[4:]...), "shorter than a header"},
	}
	for _, tt := range tests {
		_, err := Read(bytes.NewReader(tt.b), wideLimits)
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}

// A peer that announces a long body but sends little must not cause a large allocation.
func TestReadAllocatesOnlyForReceivedBytes(t *testing.T) {
	truncated := Frame{Kind: Data, Body: make([]byte, 64<<20)}.Append(nil)[:HeaderLen+10]
	before := allocated(t)
	if _, err := Read(bytes.NewReader(truncated), Limits{Data: math.MaxInt32}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if n := allocated(t) - before; n > 1<<20 {
		t.Errorf("%d bytes were allocated for 10", n)
	}
}

func TestEveryKindHasOneDirectionAndLimit(t *testing.T) {
	up, down := RankLimits(WelcomeBody{MaxMessage: 1, MaxReport: 2}), LauncherLimits(WelcomeBody{MaxMessage: 1})
	for k := range kindNames {
		_, isUp := up[k]
		_, isDown := down[k]
		handshake := k == Hello || k == Welcome || k == Job
		if both := isUp && isDown; both != (k == Data) || !isUp && !isDown && !handshake {
			t.Errorf("%v: up %v, down %v", k, isUp, isDown)
		}
	}
	if up[Report] != 2 || up[Data] != 1 {
		t.Error("the limits of the welcome are not used")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(golden)
	f.Add(Frame{Kind: Ping, Num: math.MaxUint64}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var again []byte
		for {
			frame, err := Read(r, wideLimits)
			if err != nil {
				break
			}
			again = frame.Append(again)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("Read then Append: %x -> %x", b, again)
		}
	})
}
