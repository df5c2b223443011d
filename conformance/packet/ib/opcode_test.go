package ib

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// opcodeRows is the opcode table of the specification: opcode, name, extension headers, payload.
const opcodeRows = `
00 SEND_FIRST           -               full
01 SEND_MIDDLE          -               full
02 SEND_LAST            -               some
03 SEND_LAST_IMM        imm             some
04 SEND_ONLY            -               any
05 SEND_ONLY_IMM        imm             any
06 WRITE_FIRST          reth            full
07 WRITE_MIDDLE         -               full
08 WRITE_LAST           -               some
09 WRITE_LAST_IMM       imm             some
0a WRITE_ONLY           reth            any
0b WRITE_ONLY_IMM       reth,imm        any
0c READ_REQUEST         reth            none
0d READ_RESPONSE_FIRST  aeth            full
0e READ_RESPONSE_MIDDLE -               full
0f READ_RESPONSE_LAST   aeth            some
10 READ_RESPONSE_ONLY   aeth            any
11 ACKNOWLEDGE          aeth            none
12 ATOMIC_ACKNOWLEDGE   aeth,original   none
13 COMPARE_SWAP         atomic          none
14 FETCH_ADD            atomic          none
16 SEND_LAST_INV        ieth            some
17 SEND_ONLY_INV        ieth            any
1c FLUSH                feth,reth       none
1d ATOMIC_WRITE         reth            eight
20 UC-SEND_FIRST        -               full
21 UC-SEND_MIDDLE       -               full
22 UC-SEND_LAST         -               some
23 UC-SEND_LAST_IMM     imm             some
24 UC-SEND_ONLY         -               any
25 UC-SEND_ONLY_IMM     imm             any
26 UC-WRITE_FIRST       reth            full
27 UC-WRITE_MIDDLE      -               full
28 UC-WRITE_LAST        -               some
29 UC-WRITE_LAST_IMM    imm             some
2a UC-WRITE_ONLY        reth            any
2b UC-WRITE_ONLY_IMM    reth,imm        any
44 RD-SEND_ONLY         rdeth,deth      any
4c RD-READ_REQUEST      rdeth,deth,reth none
51 RD-ACKNOWLEDGE       rdeth,aeth      none
55 RD-RESYNC            rdeth,deth      none
64 UD-SEND_ONLY         deth            any
65 UD-SEND_ONLY_IMM     deth,imm        any
81 CNP                  -               cnp
a4 XRC-SEND_ONLY        xrceth          any
ab XRC-WRITE_ONLY_IMM   xrceth,reth,imm any
ac XRC-READ_REQUEST     xrceth,reth     none
b0 XRC-READ_RESPONSE_ONLY aeth          any
b1 XRC-ACKNOWLEDGE      aeth            none
b4 XRC-FETCH_ADD        xrceth,atomic   none
b7 XRC-SEND_ONLY_INV    xrceth,ieth     any`

func TestOpcodeTable(t *testing.T) {
	headers := []string{"rdeth", "xrceth", "deth", "feth", "reth", "atomic", "aeth", "original", "imm", "ieth"}
	payloads := []string{"none", "full", "some", "any", "eight", "cnp"}
	seen := map[Opcode]bool{}
	for row := range strings.Lines(strings.TrimSpace(opcodeRows)) {
		var op Opcode
		var name, hdrs, payload string
		if _, err := fmt.Sscanf(row, "%02x %s %s %s", &op, &name, &hdrs, &payload); err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		seen[op] = true
		info, ok := op.Info()
		if !ok {
			t.Errorf("%s (%#02x) is unknown", name, uint8(op))
			continue
		}
		var got []string
		for _, h := range info.Headers {
			got = append(got, headers[h])
		}
		if g := strings.Join(got, ","); g != strings.Trim(hdrs, "-") {
			t.Errorf("%s has %s, want %s", name, g, hdrs)
		}
		if g := payloads[info.Payload]; g != payload {
			t.Errorf("%s has payload %s, want %s", name, g, payload)
		}
		if g := strings.ReplaceAll(op.String(), " ", "-"); g != name {
			t.Errorf("%#02x is %s, want %s", uint8(op), g, name)
		}
		if want := strings.Contains(name, "RESPONSE") || strings.Contains(name, "ACKNOWLEDGE"); info.Response != want {
			t.Errorf("%s is a response: %v", name, info.Response)
		}
		for i, s := range []string{"_ONLY", "_FIRST", "_MIDDLE", "_LAST"} {
			if strings.Contains(name, s) && info.Position != Position(i) {
				t.Errorf("%s has position %d", name, info.Position)
			}
		}
	}
	// The rows have all opcodes of RC, UC, UD and CNP: others must be unknown.
	for i := range 256 {
		op := Opcode(i)
		if tr := op.Transport(); tr == RD || tr == XRC || seen[op] {
			continue
		}
		if info, ok := op.Info(); ok {
			t.Errorf("%#02x is reserved, and known as %s", i, info.Name)
		}
	}
}

func TestCredits(t *testing.T) {
	want := []int{
		0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
		6144, 8192, 12288, 16384, 24576, 32768,
	}
	for code, n := range want {
		if got, limited := Credits(uint8(code)); got != n || !limited {
			t.Errorf("code %d: %d credits, limited %v, want %d", code, got, limited, n)
		}
	}
	if _, limited := Credits(31); limited {
		t.Error("code 31 is limited")
	}
}

func TestTimers(t *testing.T) {
	us := []int{
		655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240,
		15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	}
	for code, n := range us {
		if got := RNRTimer(uint8(code)); got != time.Duration(n)*time.Microsecond {
			t.Errorf("RNR timer %d is %v, want %d µs", code, got, n)
		}
	}
	for code, want := range map[uint8]time.Duration{0: 0, 1: 8192, 14: 67108864, 17: 536870912, 31: 8796093022208} {
		if got := AckTimeout(code); got != want*time.Nanosecond {
			t.Errorf("ACK timeout %d is %v, want %v", code, got, want)
		}
	}
}

func TestPSNWraps(t *testing.T) {
	if got := PSN(0xfffffe).Add(3); got != 1 {
		t.Errorf("0xfffffe + 3 is %#x", uint32(got))
	}
	if got := PSN(1).Add(-3); got != 0xfffffe {
		t.Errorf("1 - 3 is %#x", uint32(got))
	}
	for _, c := range []struct {
		p, q PSN
		d    int
	}{{0, 0xffffff, 1}, {0xffffff, 0, -1}, {100, 100, 0}, {0x7fffff, 0, 1<<23 - 1}, {0x800000, 0, -1 << 23}} {
		if got := c.p.Sub(c.q); got != c.d || c.p.Less(c.q) != (c.d < 0) {
			t.Errorf("%#x - %#x is %d, want %d", uint32(c.p), uint32(c.q), got, c.d)
		}
	}
}
