package verbs_test

import (
	"fmt"
	"testing"

	. "github.com/fabrictest/fabrictest/verbs"
)

func TestUnknownValuesPrintTheirNumber(t *testing.T) {
	for _, tc := range []struct {
		v    fmt.Stringer
		want string
	}{
		{WCStatus(22), "IBV_WC(22)"},
		{WCOpcode(7), "IBV_WC_OPCODE(7)"}, // a hole in the table
		{WCOpcode(130), "IBV_WC_OPCODE(130)"},
		{WROpcode(10), "IBV_WR(10)"},
		{QPType(0), "IBV_QPT(0)"},
		{QPType(255), "IBV_QPT(255)"},
		{QPState(7), "IBV_QPS(7)"},
		{AsyncEventType(1 << 31), "IBV_EVENT(2147483648)"},
		{MTU(0), "MTU(0)"},
		{MTU(6), "MTU(6)"},
	} {
		if got := tc.v.String(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestQPAttrMaskString(t *testing.T) {
	for _, tc := range []struct {
		m    QPAttrMask
		want string
	}{
		{0, "0x0"},
		{QPAttrDestQPN, "IBV_QP_DEST_QPN"},
		{QPAttrAV | QPAttrState, "IBV_QP_STATE|IBV_QP_AV"},
		{QPAttrPort | 1<<25 | 1<<21, "IBV_QP_PORT|0x2200000"},
		{1 << 31, "0x80000000"},
	} {
		if got := tc.m.String(); got != tc.want {
			t.Errorf("%#x prints %q, want %q", uint32(tc.m), got, tc.want)
		}
	}
}

func TestCapsHas(t *testing.T) {
	c := CapRC | CapSRQ
	for _, tc := range []struct {
		need Caps
		want bool
	}{
		{0, true}, {CapRC, true}, {CapRC | CapSRQ, true}, {CapUD, false}, {CapRC | CapUD, false},
	} {
		if got := c.Has(tc.need); got != tc.want {
			t.Errorf("Has(%#x) = %v", uint64(tc.need), got)
		}
	}
}
