package coll

import (
	"strconv"
	"strings"
)

// groupsNames stands for the names of all allgathers of groups, for messages.
const groupsNames = "or groups-N with any number of groups, alone or with -shared, -direct, -ring or -ring-direct"

// groupsAllgather returns the allgather of groups with a name; nil if there is none.
func groupsAllgather(name string) *Algorithm {
	rest, isGroups := strings.CutPrefix(name, "groups-")
	number, variant, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(number)
	if !isGroups || err != nil || n < 1 {
		return nil
	}
	a := nodeAllgather{groups: n}
	switch variant {
	case "":
	case "shared":
		a.memory = Shared
	case "direct":
		a.memory = Out
	case "ring":
		a.exchange = alongRing
	case "ring-direct":
		a.exchange, a.memory = alongRing, Out
	default:
		return nil
	}
	if canonical := strings.TrimSuffix("groups-"+strconv.Itoa(n)+"-"+variant, "-"); canonical != name {
		return nil
	}
	return a.algorithm(name)
}
