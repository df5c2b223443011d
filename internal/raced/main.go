// Command raced lists the packages that CI tests with the race detector: those whose code
// or tests have a go statement, a channel, a lock, an atomic variable or parallel tests.
// Other packages (codecs, engines) are covered through their users. Of the packages in
// parts.go, CI runs only some tests.
//
//	raced          print the packages whose tests all run
//	raced -parts   print the packages of which some tests run
//	raced -run     print the -run pattern for these tests
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

const module = "github.com/fabrictest/fabrictest"

func main() {
	partlyRaced := flag.Bool("parts", false, "print the packages of which only some tests run with -race")
	pattern := flag.Bool("run", false, "print the go test -run pattern that selects those tests")
	flag.Parse()
	if *pattern {
		fmt.Println(runPattern())
		return
	}
	all, err := packages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "raced:", err)
		os.Exit(1)
	}
	for _, p := range all {
		if _, isPart := partOf(p.name()); p.raced() && isPart == *partlyRaced {
			fmt.Println(p.ImportPath)
		}
	}
}

func (p *pack) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }
