package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
	"time"
)

var captured = []Captured{
	{At: 1_700_000_000*time.Second + 123_456_789, Link: LinkRaw, Data: linux4, Size: len(linux4)},
	{At: 1_700_000_001 * time.Second, Link: LinkRaw, Data: []byte{1, 2, 3, 4, 5}, Size: 9, Out: true, Comment: "cut, as it was longer"},
	{At: 1_700_000_002 * time.Second, Link: LinkEthernet, Data: Ethernet{Type: EtherTypeIPv4}.Append(nil, linux4), Size: 62},
	{Link: LinkRaw, Data: []byte{}, Comment: "nothing"},
}

func writeNG(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewCaptureWriter(&b, "")
	for _, c := range captured {
		if err == nil {
			err = w.Write(c)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPcapng(t *testing.T) {
	got, err := ReadCapture(bytes.NewReader(writeNG(t)))
	if err != nil || !reflect.DeepEqual(got, captured) {
		t.Errorf("%+v, %v, want\n%+v", got, err, captured)
	}
}

func TestPcap(t *testing.T) {
	var b bytes.Buffer
	if err := WritePcap(&b, LinkRaw, captured[:2]); err != nil {
		t.Fatal(err)
	}
	want := []Captured{captured[0], captured[1]}
	want[1].Out, want[1].Comment = false, "" // which pcap has no place for
	got, err := ReadCapture(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want\n%+v", got, err, want)
	}
	if err := WritePcap(&b, LinkRaw, captured); err == nil {
		t.Error("two link types in one pcap file pass")
	}
}

// Files of others: the other byte order, microseconds, blocks that we do not write.
func TestCapturesOfOthers(t *testing.T) {
	be := binary.BigEndian
	u32 := func(ns ...uint32) (b []byte) {
		for _, n := range ns {
			b = be.AppendUint32(b, n)
		}
		return b
	}
	classic := append(u32(magicMicro, 2<<16|4, 0, 0, 65535, 1, 1, 2, 4, 60), "abcd"...)
	got, err := ReadCapture(bytes.NewReader(classic))
	want := []Captured{{At: time.Second + 2*time.Microsecond, Link: LinkEthernet, Data: []byte("abcd"), Size: 60}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("pcap: %+v, %v", got, err)
	}

	ng := u32(magicNG, 28, magicOrder, 1<<16, 0xffffffff, 0xffffffff, 28)
	ng = append(ng, u32(1, 20, 101<<16, 0, 20)...)                                                           // in microseconds
	ng = append(ng, u32(1, 32, 101<<16, 0, optTSResol<<16|1, 0x8a000000, 0, 32)...)                          // in 1/1024 s
	ng = append(ng, u32(5, 16, 0, 16)...)                                                                    // statistics
	ng = append(ng, u32(6, 36, 0, 0, 3_000_001, 3, 3, 0x61626300, 36)...)                                    // of the first
	ng = append(ng, u32(6, 36, 1, 0, 512, 4, 4, 0x61626364, 36)...)                                          // of the second
	ng = append(ng, u32(3, 20, 2, 0x61620000, 20)...)                                                        // without a time
	ng = append(ng, u32(magicNG, 28, magicOrder, 1<<16, 0xffffffff, 0xffffffff, 28, 1, 20, 1<<16, 0, 20)...) // a section of its own
	ng = append(ng, u32(6, 36, 0, 0, 1, 4, 4, 0x61626364, 36)...)
	got, err = ReadCapture(bytes.NewReader(ng))
	want = []Captured{
		{At: 3*time.Second + time.Microsecond, Link: LinkRaw, Data: []byte("abc"), Size: 3},
		{At: 500 * time.Millisecond, Link: LinkRaw, Data: []byte("abcd"), Size: 4},
		{Link: LinkRaw, Data: []byte("ab"), Size: 2},
		{At: time.Microsecond, Link: LinkEthernet, Data: []byte("abcd"), Size: 4},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("pcapng: %+v, %v", got, err)
	}
}

func TestBrokenCaptures(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":         {},
		"something else":  []byte("hello, world"),
		"a huge packet":   append(binary.LittleEndian.AppendUint32(nil, magicMicro), bytes.Repeat([]byte{0xff}, 40)...),
		"a strange order": {0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4},
	} {
		if got, err := ReadCapture(bytes.NewReader(b)); !errors.Is(err, ErrFormat) || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	// Cut anywhere but between blocks it is an error, with what came before.
	b := writeNG(t)
	clean := 0
	for n := 28; n < len(b); n++ {
		if got, err := ReadCapture(bytes.NewReader(b[:n])); err == nil {
			clean++
		} else if !errors.Is(err, ErrFormat) || len(got) >= len(captured) {
			t.Errorf("%d of %d bytes: %d packets, %v", n, len(b), len(got), err)
		}
	}
	if clean != 6 { // behind the section, two interfaces and three packets
		t.Errorf("%d ways to cut the file make no error, want 6", clean)
	}
}

func TestCapturedIP(t *testing.T) {
	for i, want := range [][]byte{linux4, {1, 2, 3, 4, 5}, linux4} {
		if got, ok := captured[i].IP(); !ok || !bytes.Equal(got, want) {
			t.Errorf("packet %d: %x, %v", i, got, ok)
		}
	}
	for name, c := range map[string]Captured{
		"ARP":               {Link: LinkEthernet, Data: Ethernet{Type: EtherTypeARP}.Append(nil, nil)},
		"a cut frame":       {Link: LinkEthernet, Data: []byte{1}},
		"an unknown medium": {Link: 7, Data: linux4},
	} {
		if got, ok := c.IP(); ok {
			t.Errorf("%s: %x", name, got)
		}
	}
}

// FuzzCapture: no file brings it down, and what was read can be written and read.
func FuzzCapture(f *testing.F) {
	f.Add(writeNG(f))
	var b bytes.Buffer
	if err := WritePcap(&b, LinkRaw, captured[:2]); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := ReadCapture(bytes.NewReader(b))
		var out bytes.Buffer
		w, err := NewCaptureWriter(&out, "")
		for _, c := range got {
			if err == nil {
				err = w.Write(c)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadCapture(&out)
		if err != nil || len(again) != len(got) {
			t.Fatalf("%d packets came back as %d, %v", len(got), len(again), err)
		}
		for i := range got {
			if !bytes.Equal(got[i].Data, again[i].Data) || got[i].Link != again[i].Link || got[i].Comment != again[i].Comment {
				t.Fatalf("%+v came back as %+v", got[i], again[i])
			}
		}
	})
}
