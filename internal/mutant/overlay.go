package mutant

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// module is the path of the module whose sources are mutated.
const module = "github.com/fabrictest/fabrictest"

// Overlay writes to dir a copy of each file that mutants (deliberate defects) change, with the
// changed functions of each mutant under other names, and a names.go for this package that lists
// the mutants and the functions that they change. It returns a file for the -overlay flag of go
// build, which then compiles the copies instead of the originals in root, the module's folder.
func Overlay(root, dir string, mutants []Mutant) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	mutantsOf := map[string][]int{} // indexes of mutants, by the file that they change
	var files, names []string       // keys of mutantsOf in the order of mutants, and names of mutants
	for i := range mutants {
		names = append(names, mutants[i].Name)
		for _, h := range mutants[i].Hunks {
			if mutantsOf[h.File] == nil {
				files = append(files, h.File)
			}
			if !slices.Contains(mutantsOf[h.File], i) {
				mutantsOf[h.File] = append(mutantsOf[h.File], i)
			}
		}
	}
	replace := map[string]string{}
	numbers := &numbering{functions: make([][]int, len(mutants))}
	added := map[string]map[string]string{} // the declarations that mutants add, by folder and name
	write := func(name, text string) error {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace))) // any name that is not used yet
		replace[filepath.Join(root, filepath.FromSlash(name))] = to
		return os.WriteFile(to, []byte(text), 0o666)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		if added[path.Dir(name)] == nil {
			added[path.Dir(name)] = map[string]string{}
		}
		v, err := newVariants(name, string(text), added[path.Dir(name)], numbers)
		if err != nil {
			return "", err
		}
		for _, i := range mutantsOf[name] {
			if err := v.addMutant(i+1, &mutants[i]); err != nil { // mutants are numbered from 1
				return "", fmt.Errorf("mutant %s: %w", mutants[i].Name, err)
			}
		}
		if err := write(name, v.render()); err != nil {
			return "", err
		}
	}
	if err := write("internal/mutant/names.go", fmt.Sprintf("package mutant\n\nvar names = %#v\n\nvar functions = %#v\n", names, numbers.functions)); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, data, 0o666)
}
