package coll

import "testing"

func TestSelect(t *testing.T) {
	var chosen Choices
	if err := chosen.UnmarshalText([]byte("bcast=scatter-doubling,alltoall=spread")); err != nil {
		t.Fatal(err)
	}
	if text, _ := chosen.MarshalText(); string(text) != "bcast=scatter-doubling,alltoall=spread" {
		t.Errorf("marshalled as %s", text)
	}
	var groups Choices
	if err := groups.UnmarshalText([]byte("allgather=groups-8-shared")); err != nil {
		t.Fatal(err)
	}
	if text, _ := groups.MarshalText(); string(text) != "allgather=groups-8-shared" {
		t.Errorf("marshalled as %s", text)
	}
	ofSixteen := NewNodes(32, func(rank int) int { return rank / 16 })
	ofSeven := NewNodes(14, func(rank int) int { return rank / 7 })
	limits := Limits{Bruck: 256, Direct: 32768, Ring: 4096, Rabenseifner: 65536, Doubling: 512, Neighbour: 8192, LargeResult: 65536}
	different := &Layout{Counts: []int{1, 2}, Offsets: []int{0, 1}}
	for _, c := range []struct {
		choices Choices
		call    Call
		want    string
	}{
		{chosen, Call{Op: Bcast, Size: 8}, "scatter-doubling"},
		{chosen, Call{Op: Bcast, Size: 6}, "binomial"},
		{chosen, Call{Op: Alltoall, Size: 6}, "spread"},
		{groups, Call{Op: Allgather, Size: 32, Nodes: ofSixteen, Shared: 1 << 20}, "groups-8-shared"},
		{groups, Call{Op: Allgather, Size: 14, Nodes: ofSeven, Shared: 1 << 20}, "bruck"},
		{Choices{}, Call{Op: Alltoall, Size: 6, Bytes: 256}, "bruck"},
		{Choices{}, Call{Op: Alltoall, Size: 6, Bytes: 257}, "spread"},
		{Choices{}, Call{Op: Alltoall, Size: 6, Bytes: 32767}, "spread"},
		{Choices{}, Call{Op: Alltoall, Size: 6, Bytes: 32768}, "direct"},
		{Choices{}, Call{Op: Allgather, Size: 6, Bytes: 4095}, "bruck"},
		{Choices{}, Call{Op: Allgather, Size: 6, Bytes: 4096}, "ring"},
		{Choices{}, Call{Op: Allgather, Size: 6, Bytes: 8192}, "neighbour-exchange"},
		{Choices{}, Call{Op: Allgather, Size: 6, Bytes: 10923}, "ring"},
		{Choices{}, Call{Op: Allgather, Size: 7, Bytes: 8192}, "ring"},
		{Choices{}, Call{Op: Allgather, Size: 8, Bytes: 511}, "bruck"},
		{Choices{}, Call{Op: Allgather, Size: 8, Bytes: 512}, "recursive-doubling"},
		{Choices{}, Call{Op: Allgather, Size: 8, Bytes: 8192}, "recursive-doubling"},
		{Choices{}, Call{Op: Allgather, Size: 8, Bytes: 8193}, "ring"},
		{Choices{}, Call{Op: Allgather, Size: 128, Bytes: 513}, "bruck"},
		{Choices{}, Call{Op: Allgather, Size: 2, Bytes: 1, Out: different}, "ring"},
		{Choices{}, Call{Op: Gather, Size: 2, Bytes: 1, Out: different}, "linear"},
		{Choices{}, Call{Op: Alltoall, Size: 2, In: different, Out: different}, "spread"},
		{Choices{}, Call{Op: Gather, Size: 64, Bytes: 1}, "linear"},
		{Choices{}, Call{Op: Gather, Size: 65, Bytes: 1}, "binomial"},
		{Choices{}, Call{Op: Scatter, Size: 64, Bytes: 1}, "linear"},
		{Choices{}, Call{Op: Scatter, Size: 65, Bytes: 1}, "binomial"},
		{Choices{}, Call{Op: ReduceScatter, Size: 2, Bytes: 1}, "recursive-halving"},
		{Choices{}, Call{Op: ReduceScatter, Size: 2, Bytes: 1, Ordered: true}, "reduce-scatter"},
		{Choices{}, Call{Op: Allreduce, Size: 8, Bytes: 65536}, "rabenseifner"},
		{Choices{}, Call{Op: Allreduce, Size: 8, Bytes: 65535}, "recursive-doubling"},
		{Choices{}, Call{Op: Allreduce, Size: 7, Bytes: 65536}, "recursive-doubling"},
		{Choices{}, Call{Op: Allreduce, Size: 4, Bytes: 262144}, "rabenseifner"},
		{Choices{}, Call{Op: Allreduce, Size: 7, Bytes: 262143}, "recursive-doubling"},
		{Choices{}, Call{Op: Allreduce, Size: 3, Bytes: 1 << 20}, "recursive-doubling"},
		{Choices{}, Call{Op: Allreduce, Size: 8, Bytes: 65536, Ordered: true}, "recursive-doubling"},
	} {
		if a := Select(c.choices[c.call.Op], &c.call, limits); a.Name != c.want {
			t.Errorf("%+v: %s, want %s", c.call, a.Name, c.want)
		}
	}
}
