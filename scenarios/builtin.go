package scenarios

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.yaml
var shipped embed.FS

//go:embed schema.json
var schema []byte

// Files contains the files of the scenarios that ship with fabrictest.
func Files() fs.FS { return shipped }

// Builtin returns the scenarios that ship with fabrictest, sorted by name.
func Builtin() ([]*Scenario, error) {
	names, err := fs.Glob(shipped, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := make([]*Scenario, 0, len(names))
	for _, name := range names {
		s, err := Load(shipped, name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Scenario) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Schema is the JSON schema of scenario files (draft 2020-12).
func Schema() []byte { return append([]byte(nil), schema...) }
