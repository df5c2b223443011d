package softiwarp

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// The keys of a device in real time differ each time that it is opened.
func TestKeysDifferBetweenOpens(t *testing.T) {
	var all [2][]verbs.RKey
	for i := range all {
		d := loopback(t, "127.81.4.2", Config{})
		pd, err := d.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			mr, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Access: verbs.AccessLocalWrite})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = append(all[i], mr.RKey())
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Equal(all[0], all[1]) {
		t.Errorf("keys %#x, twice", all[0])
	}
}
