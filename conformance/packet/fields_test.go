package packet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// sample has fields of all types, aligned and not aligned to bytes.
type sample struct {
	_     struct{}   `size:"40"`
	Flag  *bool      `at:"0.0,1"`
	Three *uint8     `at:"0.1,3"`
	Over  *uint16    `at:"0.4,9" def:"0x101"` // crosses a byte boundary
	Rest  *uint8     `at:"1.5,3"`
	Mid   *uint32    `at:"2,24" fmt:"%#x"`
	Long  *uint64    `at:"5,64" fmt:"%#x"`
	Skew  *uint64    `at:"13.3,64" fmt:"%#x"`
	Addr  netip.Addr `at:"22,128"`
	Tail  []byte     `at:"38,16"`
	Other int        // not in the header: no tag
}

var fullSample = sample{
	Flag: new(true), Three: new(uint8(5)), Over: new(uint16(0x0aa)), Rest: new(uint8(6)), Mid: new(uint32(0xabcdef)),
	Long: new(uint64(0x0102030405060708)), Skew: new(uint64(1<<63 | 1)), Addr: netip.MustParseAddr("fd00::1"), Tail: []byte{0xee, 0xff},
}

const fullSampleBytes = "d556" + "abcdef" + "0102030405060708" + "100000000000000020" + "fd000000000000000000000000000001" + "eeff"

func TestFieldsRoundTrip(t *testing.T) {
	b := AppendFields([]byte{0x99}, fullSample)
	if got := hex.EncodeToString(b); got != "99"+fullSampleBytes {
		t.Fatalf("built %s, want 99%s", got, fullSampleBytes)
	}
	var got sample
	rest, err := ParseFields(append(b[1:], 7), &got)
	if err != nil || len(rest) != 1 || rest[0] != 7 {
		t.Fatalf("rest %x, %v", rest, err)
	}
	if !reflect.DeepEqual(got, fullSample) {
		t.Errorf("parsed %+v, want %+v", got, fullSample)
	}
	if rest, err := ParseFields(b[1:41], &got); err != nil || len(rest) != 0 {
		t.Errorf("exactly the header: rest %x, %v", rest, err)
	}
	if n := len(AppendFields(nil, got)); n != 40 {
		t.Errorf("length %d", n)
	}
	for n := range 40 {
		var none sample
		if rest, err := ParseFields(b[1:1+n], &none); !errors.Is(err, ErrShort) || len(rest) != n || none.Flag != nil {
			t.Errorf("%d bytes: %d left, %v", n, len(rest), err)
		}
	}
}

func TestFieldsDefaults(t *testing.T) {
	b := AppendFields(nil, sample{})
	if got := hex.EncodeToString(b[:2]); got != "0808" || strings.Trim(hex.EncodeToString(b[2:]), "0") != "" {
		t.Errorf("no field set: %x", b)
	}
	if b := AppendFields(nil, sample{Flag: new(false), Over: new(uint16(0))}); b[0] != 0 {
		t.Errorf("false is encoded as %#x", b[0])
	}
	type gap struct {
		_    struct{} `size:"2"`
		A    *uint8   `at:"0,8"`
		Half *uint8   `at:"1,4"`
	}
	if b := AppendFields(nil, gap{A: new(uint8(0xff)), Half: new(uint8(5))}); b[0] != 0xff || b[1] != 0x50 {
		t.Errorf("a field before unused bits: %x", b)
	}
	got := Or(sample{Mid: new(uint32(1)), Tail: []byte{}}, fullSample)
	if *got.Mid != 1 || len(got.Tail) != 0 || *got.Long != *fullSample.Long || got.Addr != fullSample.Addr {
		t.Errorf("with defaults: %+v", got)
	}
}

func TestAppendFieldsPanicsOnValueThatDoesNotFit(t *testing.T) {
	for want, v := range map[string]sample{
		"sample.Three: 0x8 does not fit 3 bits":   {Three: new(uint8(8))},
		"sample.Over: 0x200 does not fit 9 bits":  {Over: new(uint16(0x200))},
		"sample.Tail: 3 bytes do not fit 2":       {Tail: make([]byte, 3)},
		"sample.Mid: 0x1000000 does not fit 24 b": {Mid: new(uint32(1 << 24))},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			AppendFields(nil, v)
		}()
	}
}

func TestInvalidTagsPanic(t *testing.T) {
	for want, v := range map[string]any{
		"ends after the header's 1 bytes": struct {
			_ struct{} `size:"1"`
			A *uint8   `at:"0.1,8"`
		}{},
		"a field is a pointer": struct {
			_ struct{} `size:"1"`
			A uint8    `at:"0,8"`
		}{},
		"tag": struct {
			_ struct{} `size:"1"`
			A *uint8   `at:"x,8"`
		}{},
		"does not lie on whole bytes": struct {
			_ struct{} `size:"4"`
			A []byte   `at:"0.1,8"`
		}{},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			AppendFields(nil, v)
		}()
	}
}

func TestDifferencesInWords(t *testing.T) {
	d := Differences{{"PSN", "1", "2"}, {"MSN", "3", "4"}}
	if d.String() != "PSN: want 1, got 2; MSN: want 3, got 4" || d.Want() != "PSN 1, MSN 3" || d.Got() != "PSN 2, MSN 4" {
		t.Errorf("%q, %q, %q", d.String(), d.Want(), d.Got())
	}
	var l Line
	l.Addf("%d", 1)
	l.AddFlag("yes", new(true))
	l.AddFlag("no", new(false))
	l.AddFlag("unset", nil)
	AddField(&l, "x %d", new(2))
	AddField[int](&l, "y %d", nil)
	if l.String() != "1 yes x 2" {
		t.Errorf("%q", l.String())
	}
}

// Differences in contents are shown from the first differing byte on, for eight bytes.
func TestDiffBytes(t *testing.T) {
	for _, c := range []struct {
		want, got []byte
		diff      string
	}{
		{nil, []byte("x"), ""},
		{[]byte{}, nil, ""},
		{[]byte{}, []byte("x"), "data: want 0 B, got 1 B"},
		{[]byte("0123456789ab"), []byte("0123456789ab"), ""},
		{[]byte("0123456789ab"), []byte("0x23456x89ab"), "data: want 3132333435363738 at byte 1, got 7832333435367838 there (2 of 12 bytes differ)"},
		{[]byte("0123456789ab"), []byte("0123456789ax"), "data: want 62 at byte 11, got 78 there (1 of 12 bytes differ)"},
		{[]byte("01"), []byte("x1"), "data: want 3031 at byte 0, got 7831 there (1 of 2 bytes differ)"},
	} {
		var d Differences
		if DiffBytes(&d, "data", c.want, c.got); d.String() != c.diff {
			t.Errorf("%q and %q: %q, want %q", c.want, c.got, d, c.diff)
		}
	}
}

func TestDiffFields(t *testing.T) {
	for name, c := range map[string]struct {
		want sample
		diff string
	}{
		"nothing":     {sample{}, ""},
		"all":         {fullSample, ""},
		"flag":        {sample{Flag: new(false)}, "x Flag: want false, got true"},
		"hexadecimal": {sample{Mid: new(uint32(1))}, "x Mid: want 0x1, got 0xabcdef"},
		"address":     {sample{Addr: netip.MustParseAddr("fd00::2")}, "x Addr: want fd00::2, got fd00::1"},
		"bytes":       {sample{Tail: []byte{0xee}}, "x Tail: want 00 at byte 1, got ff there (1 of 2 bytes differ)"},
		"several":     {sample{Flag: new(true), Three: new(uint8(1)), Rest: new(uint8(1))}, "x Three: want 1, got 5; x Rest: want 1, got 6"},
	} {
		var d Differences
		DiffFields(&d, "x ", c.want, &fullSample)
		if d.String() != c.diff {
			t.Errorf("%s: %q, want %q", name, d, c.diff)
		}
	}
	var d Differences
	DiffFields(&d, "", fullSample, sample{})
	if len(d) != 9 { // all fields
		t.Errorf("got has no fields: %v", d)
	}
}
