package wire

import (
	"errors"
	"reflect"
	"testing"
)

func samples() []Header {
	memory := Memory{Addr: 0x1234_5678_9abc, Keys: [MaxRails]uint32{7, 8}, Rails: 2}
	return []Header{
		{Kind: Eager, Context: 3, Tag: 9},
		{Kind: Eager, Context: 3, Tag: 9},
		{Kind: Eager, Flags: Sync, Context: 3, Tag: 9, Send: 5},
		{Kind: Eager, Flags: Sync, Context: 3, Tag: 9, Send: 6},
		{Kind: SyncAck, Send: 5},
		{Kind: RTS, Flags: StopRTR | Ready, Context: 1, Tag: 1 << 30, Size: 1 << 40, Send: 8, Memory: memory},
		{Kind: Eager, Flags: Sync, Context: 3, Tag: 9, Send: 7},
		{Kind: CTS, Send: 8, Recv: 4, Size: 99, Memory: memory},
		{Kind: Done, Send: 8},
		{Kind: Done, Recv: 4},
		{Kind: Done, Flags: NoRTSAck, Send: 8, PostedFor: 1e9},
		{Kind: Done, Flags: Advertised, Recv: 4, Size: 1 << 33},
		{Kind: RTR, Context: 2, Tag: 7, Size: 1 << 20, Recv: 11, Memory: memory},
		{Kind: RTR, Flags: Advertised, Context: 2, Tag: 7, Size: 1 << 20, Recv: 11, Memory: memory},
		{Kind: RTRAck, Context: 2, Tag: 7, Size: 5, Recv: 11},
		{Kind: RTSAck, Send: 8, PostedFor: 1e9},
		{Kind: Revoke, Context: 2, Tag: 7, Recv: 11},
		{Kind: Revoke, Flags: Advertised, Context: 2, Tag: 7, Recv: 11},
		{Kind: Revoked, Recv: 11},
		{Kind: Accumulate, Context: 6, Offset: 1 << 33, Type: 3, Op: 9},
		{Kind: Accumulate, Flags: Fetch, Context: 6, Offset: 8, Type: 1, Op: 2, Size: 1024},
		{Kind: CompareSwap, Context: 6, Offset: 16, Type: 4},
		{Kind: AccumulateReply, Context: 6},
		{Kind: Flush, Context: 6},
		{Kind: Flushed, Context: 6},
		{Kind: Post, Context: 1 << 31},
		{Kind: Complete, Context: 6},
		{Kind: Lock, Flags: Exclusive, Context: 6},
		{Kind: Lock, Context: 6},
		{Kind: Granted, Context: 6},
		{Kind: Unlock, Context: 6},
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	var e Encoder
	var d Decoder
	var all []byte
	for _, h := range samples() {
		before := len(all)
		all = e.Append(all, &h)
		if n := len(all) - before; n > MaxLen {
			t.Errorf("%v has %d bytes", h.Kind, n)
		}
	}
	rest := append(all, "data"...)
	for _, want := range samples() {
		var got Header
		var err error
		if got, rest, err = d.Next(rest); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v is decoded as %+v, %v", want, got, err)
		}
	}
	if string(rest) != "data" {
		t.Errorf("%q remains", rest)
	}
}

func TestSamplesCoverAllKinds(t *testing.T) {
	seen := make(map[Kind]bool)
	for _, h := range samples() {
		seen[h.Kind] = true
	}
	for k := Kind(1); k < numKinds; k++ {
		if !seen[k] || k.String() == "" || fields[k] == 0 {
			t.Errorf("kind %d (%v) has no sample, no name or no fields", uint8(k), k)
		}
	}
}

func TestRepeatedEagerHeaderIsOneByte(t *testing.T) {
	var e Encoder
	h := Header{Kind: Eager, Context: 1, Tag: 2}
	full := len(e.Append(nil, &h))
	if again := len(e.Append(nil, &h)); full != 10 || again != 1 {
		t.Errorf("a header has %d bytes, and %d when repeated", full, again)
	}
	h.Tag++
	if other := len(e.Append(nil, &h)); other != full {
		t.Errorf("a header with another tag has %d bytes, want %d", other, full)
	}
}

func TestTruncatedHeadersAreRejected(t *testing.T) {
	for _, h := range samples() {
		var e Encoder
		b := e.Append(nil, &h)
		for n := range b {
			var d Decoder
			if got, _, err := d.Next(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d of %d bytes of %v are decoded as %+v, %v", n, len(b), h.Kind, got, err)
			}
		}
	}
}

func FuzzHeader(f *testing.F) {
	var e Encoder
	for _, h := range samples() {
		f.Add(e.Append(nil, &h))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Decoder
		var enc Encoder
		for rest := b; len(rest) > 0; {
			h, next, err := d.Next(rest)
			if err != nil {
				return
			}
			if len(next) >= len(rest) {
				t.Fatalf("%d of %d bytes remain: Next read nothing", len(next), len(rest))
			}
			var again Decoder
			if enc.last.Kind == Eager {
				again.last = enc.last
			}
			if got, _, err := again.Next(enc.Append(nil, &h)); err != nil || got != h {
				t.Fatalf("%+v is encoded and decoded as %+v, %v", h, got, err)
			}
			rest = next
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	var e Encoder
	var d Decoder
	h := Header{Kind: RTS, Context: 1, Tag: 5, Size: 1 << 20, Send: 8, Memory: Memory{Rails: 1}}
	buf := make([]byte, 0, MaxLen)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := d.Next(e.Append(buf[:0], &h)); err != nil {
			b.Fatal(err)
		}
	}
}
