package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestDefectsListsAllThatRunTakes(t *testing.T) {
	_, plain, _ := call(t, "list", "defects")
	_, out, _ := call(t, "list", "defects", "--json")
	var listed []nics.Defect
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != len(nics.AllDefects()) {
		t.Fatalf("%d defects, %v", len(listed), err)
	}
	for _, q := range listed {
		if !strings.Contains(plain, q.Name+" ") || !strings.Contains(plain, q.Does) {
			t.Errorf("%s is not in the plain list", q.Name)
		}
	}
}
