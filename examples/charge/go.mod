module github.com/idemd/idemd/examples/charge

go 1.26.0
