// Renders the templates of a chart as Helm does: Go's templates with the functions of sprig.
// Usage: render CHART VALUES_AS_JSON
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/Masterminds/sprig"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var values map[string]interface{}
	check(json.Unmarshal([]byte(os.Args[2]), &values))
	root := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := root.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	root.Funcs(functions)
	files, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*.yaml"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		template.Must(root.New(filepath.Base(file)).Parse(string(text)))
	}
	data := map[string]interface{}{"Values": values, "Release": map[string]string{"Name": "nightly"}}
	for _, file := range files {
		fmt.Println("---")
		check(root.ExecuteTemplate(os.Stdout, filepath.Base(file), data))
	}
}
