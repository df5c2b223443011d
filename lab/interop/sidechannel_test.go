package interop

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// endpointGolden is written by ibv_rc_pingpong for "QPN 0x000011, PSN 0xd5bf3e, GID
// ::ffff:10.77.0.11": the line and the NUL of sizeof msg.
var endpointGolden = []byte("0000:000011:d5bf3e:00000000000000000000ffff0a4d000b\x00")

var endpointValue = Endpoint{QPN: 0x11, PSN: 0xd5bf3e, GID: verbs.GIDFrom(netip.MustParseAddr("10.77.0.11"))}

func TestEndpointGolden(t *testing.T) {
	if got := endpointValue.Append(nil); !bytes.Equal(got, endpointGolden) {
		t.Errorf("Append = %q, want %q", got, endpointGolden)
	}
	var e Endpoint
	rest, err := e.Parse(append(bytes.Clone(endpointGolden), "next"...))
	if err != nil || e != endpointValue || string(rest) != "next" {
		t.Errorf("Parse = %+v, rest %q, %v; want %+v", e, rest, err, endpointValue)
	}
}

func TestEndpointParseRejectsEveryPrefix(t *testing.T) {
	for n := range endpointGolden {
		var e Endpoint
		if _, err := e.Parse(endpointGolden[:n]); !errors.Is(err, ErrEndpoint) {
			t.Errorf("Parse(%d bytes) = %v, want ErrEndpoint", n, err)
		}
	}
}

func TestEndpointParseRejectsEveryBadByte(t *testing.T) {
	for i := range endpointGolden {
		b := bytes.Clone(endpointGolden)
		b[i] = 'x'
		var e Endpoint
		if _, err := e.Parse(b); !errors.Is(err, ErrEndpoint) {
			t.Errorf("Parse with byte %d corrupted = %v, want ErrEndpoint", i, err)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add(endpointGolden)
	f.Add(Endpoint{LID: 0xffff, QPN: 0xffffff, PSN: 0xffffff}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Endpoint
		rest, err := e.Parse(b)
		if err != nil {
			return
		}
		// Digits may be upper case: only the value must survive.
		var reparsed Endpoint
		if _, err := reparsed.Parse(e.Append(nil)); err != nil || reparsed != e || len(rest) != len(b)-EndpointLen {
			t.Fatalf("Parse(%q) = %+v, reparsed %+v, %v", b, e, reparsed, err)
		}
	})
}
