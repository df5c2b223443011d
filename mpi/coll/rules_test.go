package coll

import (
	"strings"
	"testing"
)

// A rule applies to the calls of its operation, ranks and sizes, and to no others.
func TestRulesApplyByRanksAndSizes(t *testing.T) {
	all := []Rule{
		{Operation: "bcast", Ranks: 8, From: 1024, To: 4095, Algorithm: "chain"},
		{Operation: "bcast", Ranks: 8, To: 511, Algorithm: "linear"},
		{Operation: "bcast", Ranks: 8, PerHost: 4, From: 8192, Algorithm: "van-de-geijn"},
		{Operation: "bcast", Ranks: 8, PerHost: 2, From: 8192, Algorithm: "linear"},
		{Operation: "bcast", Ranks: 16, Algorithm: "linear"},
		{Operation: "allgather", Ranks: 16, Algorithm: "groups-8"},
	}
	for i := range all {
		if err := all[i].Check(); err != nil {
			t.Fatal(err)
		}
		for k := range all {
			if all[i].Overlaps(&all[k]) != (i == k) {
				t.Errorf("rules %d and %d: overlap %v", i, k, i != k)
			}
		}
	}
	s := RulesFor(all, 8, 4)
	for bytes, want := range map[int]string{0: "linear", 511: "linear", 512: "", 1023: "", 1024: "chain", 4095: "chain", 4096: "", 8191: "", 8192: "van-de-geijn", 1 << 30: "van-de-geijn"} {
		name := ""
		if a := s.Find(&Call{Op: Bcast, Size: 8, Bytes: bytes}); a != nil {
			name = a.Name
		}
		if name != want {
			t.Errorf("%d bytes: %q, want %q", bytes, name, want)
		}
	}
	for name, c := range map[string]Call{"another operation": {Op: Reduce}, "blocks of different sizes": {Op: Bcast, Out: &Layout{}}} {
		if a := s.Find(&c); a != nil {
			t.Errorf("%s: %s", name, a.Name)
		}
	}
	if a := RulesFor(all, 9, 4).Find(&Call{Op: Bcast}); a != nil {
		t.Errorf("9 ranks: %s", a.Name)
	}
}

func TestWrongRulesAreRejected(t *testing.T) {
	for want, r := range map[string]Rule{
		`operation "gossip" is none of barrier`:     {Operation: "gossip", Ranks: 2, Algorithm: "linear"},
		`algorithm "bruck" of bcast is none of`:     {Operation: "bcast", Ranks: 2, Algorithm: "bruck"},
		"ranks: 0 is less than 1":                   {Operation: "bcast", Algorithm: "chain"},
		"per_host: -1 is less than 0":               {Operation: "bcast", Ranks: 2, PerHost: -1, Algorithm: "chain"},
		"from 9 to 8: no size is in this range":     {Operation: "bcast", Ranks: 2, From: 9, To: 8, Algorithm: "chain"},
		"from 0 to -1: no size is in this range":    {Operation: "bcast", Ranks: 2, To: -1, Algorithm: "chain"},
		"from -1 to 0: no size is in this range":    {Operation: "bcast", Ranks: 2, From: -1, Algorithm: "chain"},
		`operation "" is none of barrier, bcast, s`: {},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}
