package kernel

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Directories of programs and libraries in unpacked Debian packages.
var (
	programDirs = []string{"bin", "sbin", "usr/bin", "usr/sbin"}
	libraryDirs = []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"}
)

const loader = "ld-linux-x86-64.so.2"

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func findProgram(root, name string) (string, error) { return findIn(root, programDirs, name) }

// findIn finds a file and follows symbolic links within root.
func findIn(root string, dirs []string, name string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(root, dir, name)
		for range 8 { // links of links
			target, err := os.Readlink(path)
			if err != nil {
				break
			}
			if filepath.IsAbs(target) {
				path = filepath.Join(root, target)
			} else {
				path = filepath.Join(filepath.Dir(path), target)
			}
		}
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("no package has %s: add its new package to the recipe", name)
}

// packPrograms adds the programs, the libibverbs drivers, and their libraries.
func packPrograms(a *Archive, user string) error {
	a.AddDir("/usr/bin")
	var all []string
	for _, name := range currentRecipe.Programs {
		path, err := findProgram(user, name)
		if err != nil {
			return err
		}
		if err := addFile(a, "/usr/bin/"+name, path); err != nil {
			return err
		}
		all = append(all, path)
	}
	for _, name := range providers {
		if err := addFile(a, "/etc/libibverbs.d/"+name+".driver", filepath.Join(user, "etc/libibverbs.d", name+".driver")); err != nil {
			return err
		}
		found, _ := filepath.Glob(filepath.Join(user, "usr/lib/x86_64-linux-gnu/libibverbs", "lib"+name+"-rdmav*.so"))
		if len(found) != 1 {
			return fmt.Errorf("%d drivers of libibverbs for %s, want one", len(found), name)
		}
		if err := addFile(a, "/usr/lib/x86_64-linux-gnu/libibverbs/"+filepath.Base(found[0]), found[0]); err != nil {
			return err
		}
		all = append(all, found[0])
	}
	libraries, err := libraryClosure(user, all, currentRecipe.DLOpened)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(libraries) {
		if err := addFile(a, "/lib/x86_64-linux-gnu/"+name, libraries[name]); err != nil {
			return err
		}
	}
	a.AddLink("/lib64/"+loader, "/lib/x86_64-linux-gnu/"+loader)
	return nil
}

// libraryClosure returns, by name, the shared libraries that programs and the named
// libraries need, transitively.
func libraryClosure(root string, programs, named []string) (map[string]string, error) {
	found := map[string]string{}
	var visit func(path string) error
	add := func(name, by string) error {
		if found[name] != "" {
			return nil
		}
		path, err := findIn(root, libraryDirs, name)
		if err != nil {
			return fmt.Errorf("%s needs %s: %w", by, name, err)
		}
		found[name] = path
		return visit(path)
	}
	visit = func(path string) error {
		f, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer f.Close()
		needs, err := f.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, name := range needs {
			if err := add(name, filepath.Base(path)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, path := range programs {
		if err := visit(path); err != nil {
			return nil, err
		}
	}
	for _, name := range append([]string{loader}, named...) {
		if err := add(name, "the recipe"); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// moduleName returns the name of a module from its file name, with underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
