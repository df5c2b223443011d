package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestQuirksListsAllThatRunTakes(t *testing.T) {
	_, plain, _ := call(t, "quirks")
	_, out, _ := call(t, "quirks", "--json")
	var listed []nics.Quirk
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != len(nics.AllQuirks()) {
		t.Fatalf("%d quirks, %v", len(listed), err)
	}
	for _, q := range listed {
		if !strings.Contains(plain, q.Name+" ") || !strings.Contains(plain, q.Does) {
			t.Errorf("%s is not in the plain list", q.Name)
		}
	}
}
