package interop

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	bufferInfoGolden = []byte{0, 0, 0x55, 0x66, 0x77, 0x88, 0x99, 0xa0, 0, 0, 0x12, 0x34, 0, 0, 0, 0x40}
	bufferInfoValue  = BufferInfo{Addr: 0x5566778899a0, RKey: 0x1234, Size: 64}
)

func TestBufferInfoGolden(t *testing.T) {
	if got := bufferInfoValue.Append(nil); !bytes.Equal(got, bufferInfoGolden) {
		t.Errorf("Append = %x, want %x", got, bufferInfoGolden)
	}
	var m BufferInfo
	if err := m.Parse(bufferInfoGolden); err != nil || m != bufferInfoValue {
		t.Errorf("Parse = %+v, %v; want %+v", m, err, bufferInfoValue)
	}
}

func TestBufferInfoParseRejectsEveryOtherLength(t *testing.T) {
	for n := range 2 * BufferInfoLen {
		var m BufferInfo
		if err := m.Parse(make([]byte, n)); (err == nil) != (n == BufferInfoLen) || err != nil && !errors.Is(err, ErrBufferInfo) {
			t.Errorf("Parse(%d bytes) = %v", n, err)
		}
	}
}

// The first two lines that `rping -c -v -S 96` prints, and the wrap at its 59th.
func TestRPingText(t *testing.T) {
	for n, want := range map[int]string{
		0:  "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX\x00",
		1:  "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY\x00",
		58: "rdma-ping-58: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW\x00",
	} {
		got := make([]byte, len(want))
		RPingText(got, n)
		if string(got) != want {
			t.Errorf("ping %d:\n got %q\nwant %q", n, got, want)
		}
	}
}

func TestCheckPingNamesTheByte(t *testing.T) {
	b := make([]byte, 1025)
	RPingText(b, 3)
	must.Do(t, checkPing(b, 3))
	b[1000] ^= 1
	if err := checkPing(b, 3); err == nil || !strings.Contains(err.Error(), "byte 1000") {
		t.Errorf("checkPing with byte 1000 spoilt = %v", err)
	}
}
